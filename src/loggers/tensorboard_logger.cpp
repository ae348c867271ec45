#include "kindling/loggers/tensorboard_logger.h"

#include <fcntl.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "base/file_descriptor.h"
#include "base/file_operations.h"
#include "base/utf8.h"
#include "kindling/base/log.h"
#include "loggers/event_file.h"

namespace kindling {
namespace {

// A value of a summary whose tab is chosen by the plugin's name: summary.proto, tensor.proto.
ProtobufWriter plugin_value(const std::string& tag, const char* plugin, ProtobufWriter content,
                            ProtobufWriter tensor) {
  ProtobufWriter data, metadata, value;
  data.text(1, plugin);
  if (content.size() > 0) data.message(2, std::move(content));
  metadata.message(1, std::move(data));
  value.text(SummaryValueField::tag, tag);
  value.message(SummaryValueField::metadata, std::move(metadata));
  value.message(SummaryValueField::tensor, std::move(tensor));
  return value;
}

// A vector of one string: DT_STRING is 7.
ProtobufWriter string_tensor(const std::string& text) {
  ProtobufWriter size, shape, tensor;
  size.integer(1, 1);
  shape.message(2, std::move(size));
  tensor.integer(1, 7);
  tensor.message(2, std::move(shape));
  tensor.text(8, text);
  return tensor;
}

// TensorBoard ignores summaries without a tensor, also where only the plugin's content counts: DT_FLOAT is 1.
ProtobufWriter empty_tensor() {
  ProtobufWriter tensor;
  tensor.integer(1, 1);
  tensor.message(2, ProtobufWriter());
  tensor.real(5, 0);
  return tensor;
}

ProtobufWriter summary_event(std::int64_t step, ProtobufWriter value) {
  ProtobufWriter event = event_at(step), summary;
  summary.message(1, std::move(value));
  event.message(EventField::summary, std::move(summary));
  return event;
}

// google.protobuf.Value
ProtobufWriter any_value(const std::string& text) {
  ProtobufWriter value;
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [read_to, error] = std::from_chars(text.data(), end, number);
  if (text == "true" || text == "false")
    value.integer(4, text == "true");
  else if (error == std::errc() && read_to == end)
    value.real64(2, number);
  else
    value.text(3, text);
  return value;
}

// HParamsPluginData of the plugin's plugin_data.proto: one of experiment = 2, session_start_info = 3 and
// session_end_info = 4.
ProtobufWriter hparams_event(const std::string& tag, int field, ProtobufWriter content) {
  ProtobufWriter data;
  data.message(field, std::move(content));
  return summary_event(0, plugin_value(tag, "hparams", std::move(data), empty_tensor()));
}

bool event_is_beyond(const EventRecord& event, const Progress& at) {
  if (event.tags.empty()) return false;
  return is_beyond({.kind = event.epoch >= 0 ? Record::Kind::epoch
                            : event.is_step  ? Record::Kind::step
                                             : Record::Kind::validation,
                    .global_step = event.step,
                    .epoch = event.epoch},
                   at);
}

// What a resumed run finds in the files of former starts.
struct KeptEvents {
  bool has_text = false;
  std::vector<std::string> tags{};  // of the points at the step from which the run resumes
};

// Truncates a file before its first record that a resumed run writes again, or before the end of the session
// that follows its last record. Adds what it keeps to `kept`. Skips files of other programs.
void cut_events(const std::filesystem::path& path, const Progress& at, KeptEvents& kept) {
  EventReader reader(path);
  EventRecord event;
  std::optional<std::size_t> cut, end;
  if (!reader.next(event) || !event.is_of_kindling) return;
  while (!cut && reader.next(event)) {
    if (event_is_beyond(event, at)) {
      cut = end.value_or(event.begin);
      continue;
    }
    kept.has_text |= event.has_text;
    if (event.step == at.global_step) kept.tags.insert(kept.tags.end(), event.tags.begin(), event.tags.end());
    if (event.is_end)
      end = event.begin;
    else
      end.reset();  // another fit has used the logger
  }
  if (!cut) cut = end;
  if (!cut && !reader.is_damaged()) return;
  const auto size = static_cast<off_t>(cut.value_or(reader.end()));
  const auto former_size = static_cast<off_t>(std::filesystem::file_size(path));
  const FileDescriptor file(path, O_WRONLY | O_NOFOLLOW);
  if (!file.ok() || without_interruptions([&] { return file_operations().ftruncate(file.get(), size); }) != 0)
    fail_on_file(path, "cut", errno);
  if (!cut)  // as a killed process leaves it
    log_warning(path.string() + ": " + std::to_string(former_size - size) +
                " bytes at the end are not a whole event; they were removed");
}

}  // namespace

struct TensorBoardLogger::State {
  std::filesystem::path folder;
  std::int64_t first_step = 0;
  bool has_texts = false;         // a former file has them
  std::int64_t latest_step = -1;  // of the records so far
  std::vector<std::string> tags_of_step{};
  std::vector<std::pair<std::string, std::string>> texts{};
  std::vector<std::pair<std::string, std::string>> hyperparameters{};
  std::vector<std::string> metrics{};
  std::optional<EventFile> file{};

  EventFile& open() {
    if (file) return *file;
    file.emplace(folder, first_step);
    if (has_texts) return *file;
    for (const auto& [name, markdown] : texts)
      file->append(summary_event(
          0, plugin_value(name + "/text_summary", "text", ProtobufWriter(), string_tensor(markdown))));
    if (!hyperparameters.empty()) write_hyperparameters();
    return *file;
  }

  // Returns false if the step has a point of that tag: an epoch has the `lr` of its last step, as the record
  // of this step does.
  bool is_new_point(std::int64_t step, const std::string& tag) {
    if (step != std::exchange(latest_step, step)) tags_of_step.clear();
    if (std::ranges::find(tags_of_step, tag) != tags_of_step.end()) return false;
    tags_of_step.push_back(tag);
    return true;
  }

  void write_hyperparameters() {
    ProtobufWriter experiment, start;
    for (const auto& [name, value] : hyperparameters) {
      ProtobufWriter info, entry;
      info.text(1, name);
      experiment.message(4, std::move(info));
      entry.text(1, name);
      entry.message(2, any_value(value));
      start.message(1, std::move(entry));
    }
    for (const std::string& tag : metrics) {
      ProtobufWriter name, info;
      name.text(2, tag);
      info.message(1, std::move(name));
      experiment.message(5, std::move(info));
    }
    start.real64(5, system_seconds());
    file->append(hparams_event("_hparams_/experiment", 2, std::move(experiment)));
    file->append(hparams_event("_hparams_/session_start_info", 3, std::move(start)));
  }

  void write_session_end(bool is_success) {
    ProtobufWriter end;
    end.integer(1, is_success ? 1 : 2);  // api.proto: STATUS_SUCCESS, STATUS_FAILURE
    end.real64(2, system_seconds());
    open().append(hparams_event(std::string(kSessionEndTag), 4, std::move(end)));
  }
};

TensorBoardLogger::TensorBoardLogger(std::filesystem::path folder) : state_(new State{std::move(folder)}) {}

TensorBoardLogger::~TensorBoardLogger() = default;

void TensorBoardLogger::add_text(const std::string& name, std::string markdown) {
  state_->texts.emplace_back(valid_utf8(name), valid_utf8(markdown));
}

void TensorBoardLogger::add_hyperparameters(std::vector<std::pair<std::string, std::string>> values,
                                            std::vector<std::string> metrics) {
  // Protobuf's parsers refuse a whole event for one invalid byte in a text.
  for (auto& [name, value] : values) {
    name = valid_utf8(name);
    value = valid_utf8(value);
  }
  for (std::string& name : metrics) name = valid_utf8(name);
  state_->hyperparameters = std::move(values);
  state_->metrics = std::move(metrics);
}

void TensorBoardLogger::write(const Record& record) {
  ProtobufWriter event = event_at(record.global_step), summary;
  const auto add = [&](const std::string& tag, double number) {
    if (!state_->is_new_point(record.global_step, tag)) return;
    ProtobufWriter value;
    value.text(SummaryValueField::tag, valid_utf8(tag));
    value.real(SummaryValueField::simple_value, static_cast<float>(number));
    summary.message(1, std::move(value));
  };
  const bool is_epoch = record.kind == Record::Kind::epoch;
  if (is_epoch) add("epoch", static_cast<double>(record.epoch));
  for (const auto& [name, number] : record.values)
    if (name != "epoch") add(name, number);
  event.message(EventField::summary, std::move(summary));
  state_->open().append(std::move(event));
  if (is_epoch) state_->file->flush();
}

void TensorBoardLogger::finish() {
  state_->latest_step = -1;  // another fit has points of its own
  state_->tags_of_step.clear();
  if (state_->file) state_->file->flush();
}

// TensorBoard uses the first end that it finds, so a run that may resume gets none.
void TensorBoardLogger::finalize(FitStatus status) {
  if (!state_->hyperparameters.empty() && status != FitStatus::stopped)
    state_->write_session_end(status == FitStatus::finished);
  finish();
}

void TensorBoardLogger::sync() {
  if (state_->file) state_->file->sync();
}

void TensorBoardLogger::resume_at(const Progress& at) {
  state_->file.reset();
  state_->first_step = at.global_step + 1;
  KeptEvents kept;
  for (const auto& entry : std::filesystem::directory_iterator(state_->folder))
    if (entry.path().filename().string().starts_with("events.out.tfevents.") && entry.is_regular_file())
      cut_events(entry.path(), at, kept);
  state_->has_texts = kept.has_text;
  state_->latest_step = at.global_step;
  state_->tags_of_step = std::move(kept.tags);
}

}  // namespace kindling
