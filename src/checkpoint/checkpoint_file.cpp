#include "checkpoint/checkpoint_file.h"

#include <charconv>

namespace kindling {
namespace {

const std::string* find_text(const SafetensorsFile& file, const char* key) {
  const auto found = file.index().metadata.find(key);
  return found == file.index().metadata.end() ? nullptr : &found->second;
}

[[noreturn]] void refuse_entry(const SafetensorsFile& file, const std::string& found) {
  throw CheckpointError({.place = file.path().string(),
                         .found = found,
                         .wanted = "a checkpoint of a run",
                         .remedy = "pass a file that a run has saved"});
}

const std::string& text_of(const SafetensorsFile& file, const char* key) {
  const std::string* const text = find_text(file, key);
  if (text == nullptr) refuse_entry(file, std::string("its metadata has no ") + key);
  return *text;
}

template <class Number>
Number number_of(const SafetensorsFile& file, const char* key) {
  const std::string& text = text_of(file, key);
  Number number = {};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size())
    refuse_entry(file, std::string(key) + " in its metadata is not a number");
  return number;
}

std::int64_t count_of(const SafetensorsFile& file, const char* key) {
  const auto count = number_of<std::int64_t>(file, key);
  if (count < 0) refuse_entry(file, std::string(key) + " in its metadata is negative");
  return count;
}

bool is_max(const SafetensorsFile& file, const std::string& mode) {
  if (mode != "min" && mode != "max")
    refuse_entry(file, std::string(saved_keys::kMonitorMode) + " in its metadata is neither min nor max");
  return mode == "max";
}

// Checked first: a newer format may have other entries and other checksums.
void refuse_newer(const SafetensorsFile& file) {
  const auto version = count_of(file, saved_keys::kFormatVersion);
  if (version > kCheckpointFormatVersion)
    throw NewerCheckpointError(
        {.place = file.path().string(),
         .found = "it was saved by a newer version of Kindling (format " + std::to_string(version) + ")",
         .wanted = "format " + std::to_string(kCheckpointFormatVersion) + " or older",
         .remedy = "use that version of Kindling, or move the file away to resume "
                   "from an older checkpoint"});
}

}  // namespace

NewerCheckpointError::~NewerCheckpointError() = default;

void require_checkpoint(const SafetensorsFile& file) {
  refuse_newer(file);
  if (!file.has_checksums()) refuse_entry(file, "it has no checksums");
}

CheckpointInfo checkpoint_info(const SafetensorsFile& file) {
  require_checkpoint(file);
  CheckpointInfo info{.path = file.path(),
                      .run_id = text_of(file, saved_keys::kRunId),
                      .global_step = count_of(file, saved_keys::kGlobalStep),
                      .epoch = count_of(file, saved_keys::kEpoch),
                      .monitor = {},
                      .monitored_value = std::nullopt,
                      .higher_is_better = std::nullopt};
  if (const std::string* const monitor = find_text(file, saved_keys::kMonitorName)) info.monitor = *monitor;
  if (const std::string* const mode = find_text(file, saved_keys::kMonitorMode))
    info.higher_is_better = is_max(file, *mode);
  if (find_text(file, saved_keys::kMonitorValue) != nullptr)
    info.monitored_value = number_of<double>(file, saved_keys::kMonitorValue);
  return info;
}

CheckpointInfo read_checkpoint_info(const std::filesystem::path& path) {
  return checkpoint_info(SafetensorsFile(path));
}

}  // namespace kindling
