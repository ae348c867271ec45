#include "tensors/weights_file.h"

#include <map>
#include <tuple>
#include <utility>

#include "formats/json_view.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/json.h"
#include "kindling/base/log.h"
#include "kindling/base/suggest.h"

namespace kindling {
namespace {

constexpr std::size_t kMaxIndexBytes = std::size_t{1} << 26;

void warn_of_skipped_types(const SafetensorsFile& file) {
  std::vector<std::string> names;
  for (const SkippedTensor& tensor : file.index().skipped)
    names.push_back(json_string(tensor.name.substr(0, 100)) + " (" + tensor.dtype + ")");
  if (names.empty()) return;
  log_warning(file.path().string() + ": skipped tensors of types that LibTorch does not have: " +
              list_names(names) + "; convert them in Python to read them here");
}

void warn_of_skipped_entries(const TorchFile& file, const std::filesystem::path& path) {
  if (!file.skipped().empty())
    log_warning(path.string() + ": skipped entries that are not tensors: " + list_names(file.skipped()));
}

[[noreturn]] void refuse_index(const std::filesystem::path& path, const std::string& where,
                               const std::string& found, const std::string& wanted) {
  throw CheckpointError({.place = path.string() + where,
                         .found = found,
                         .wanted = wanted,
                         .remedy = "download the index and all its files again"});
}

// Returns the names of the tensors in each file. A file is in the folder of the index.
std::map<std::string, std::vector<std::string>> files_of_index(const std::filesystem::path& path) {
  const nlohmann::json json = parse_json(read_file(path, kMaxIndexBytes), path.string());
  const JsonView map = JsonView(json, path.string())["weight_map"];
  std::map<std::string, std::vector<std::string>> files;
  for (const JsonView::Member& member : map.members()) {
    const std::string& file = member.value.text();
    if (file.empty() || std::filesystem::path(file).filename() != file || file == "..")
      refuse_index(path, ", weight_map " + json_string(member.key.substr(0, 100)),
                   "its file is " + json_string(file.substr(0, 100)), "the name of a file next to the index");
    files[file].push_back(member.key);
  }
  return files;
}

}  // namespace

bool is_weights_index(const std::filesystem::path& path) {
  return path.filename().string().ends_with(".index.json");
}

WeightsFile WeightsFile::open(const std::filesystem::path& path, const std::string& key) {
  const bool is_torch = !is_weights_index(path) && is_torch_file(path);
  if (!is_torch && !key.empty())
    throw CheckpointError({.place = path.string(),
                           .found = "it is not a file of torch.save, and only those have keys",
                           .remedy = "omit the key '" + key + "'"});
  if (is_weights_index(path)) return open_index(path);
  if (!is_torch) {
    WeightsFile file{SafetensorsFile(path)};
    if (file.entries().empty())
      throw CheckpointError(
          {.place = path.string(), .found = "it contains no tensors", .wanted = "a file of weights"});
    return file;
  }
  TorchFile file(path, key);
  warn_of_skipped_entries(file, path);
  return WeightsFile(std::move(file));
}

WeightsFile WeightsFile::open_index(const std::filesystem::path& path) {
  WeightsFile all;
  for (const auto& [name, tensors] : files_of_index(path)) {
    const std::filesystem::path file = path.parent_path() / name;
    const std::size_t begin = all.entries_.size();
    if (is_torch_file(file))
      all.add(TorchFile(file));
    else
      all.add(SafetensorsFile(file));
    std::vector<std::string> found;
    for (std::size_t i = begin; i < all.entries_.size(); ++i) found.push_back(all.entries_[i].name);
    std::vector<std::string> wanted = tensors;
    std::ranges::sort(found);
    std::ranges::sort(wanted);
    if (found != wanted)
      refuse_index(path, "", json_string(name) + " does not contain the tensors that the index names",
                   std::to_string(wanted.size()) + " tensors, as in weight_map");
  }
  if (all.entries_.empty()) refuse_index(path, ", weight_map", "it is empty", "the file of each tensor");
  return all;
}

WeightsFile::WeightsFile(SafetensorsFile file) {
  metadata_ = file.index().metadata;
  add(std::move(file));
  add_aliases();
}

WeightsFile::WeightsFile(TorchFile file) { add(std::move(file)); }

void WeightsFile::add(SafetensorsFile file) {
  warn_of_skipped_types(file);
  const std::vector<TensorEntry>& tensors = file.index().tensors;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    places_.emplace_back(files_.size(), i);
    entries_.push_back({tensors[i].name, tensors[i].type, tensors[i].shape, entries_.size()});
  }
  files_.emplace_back(std::move(file));
}

void WeightsFile::add(TorchFile file) {
  const auto values_of = [](const TorchTensor& one) {
    return std::tuple(one.storage, one.offset, one.type, one.shape, one.strides);
  };
  std::map<decltype(values_of(TorchTensor())), std::size_t> known;
  for (std::size_t i = 0; i < file.tensors().size(); ++i) {
    const TorchTensor& tensor = file.tensors()[i];
    const std::size_t first = known.try_emplace(values_of(tensor), entries_.size()).first->second;
    places_.emplace_back(files_.size(), i);
    entries_.push_back({tensor.name, tensor.type, tensor.shape, first});
  }
  files_.emplace_back(std::move(file));
}

// Python's save_model writes tied weights once, and {"another name": "its name"} into the metadata. Files
// with checksums are Kindling's, whose metadata has other texts.
void WeightsFile::add_aliases() {
  if (std::get<SafetensorsFile>(files_[0]).has_checksums()) return;
  std::map<std::string, std::size_t, std::less<>> known;
  for (std::size_t i = 0; i < entries_.size(); ++i) known.emplace(entries_[i].name, i);
  for (const auto& [name, text] : metadata_) {
    const auto kept = known.find(text);
    if (name == "format" || kept == known.end() || known.contains(name)) continue;
    const Entry entry = entries_[kept->second];
    places_.push_back(places_[kept->second]);
    entries_.push_back({name, entry.type, entry.shape, kept->second, true});
  }
}

void WeightsFile::map_large_files() {
  constexpr std::size_t kLargeBytes = std::size_t{1} << 24;
  for (const File& file : files_) {
    const auto* safetensors = std::get_if<SafetensorsFile>(&file);
    std::size_t bytes = 0;
    if (safetensors != nullptr && !safetensors->has_checksums())
      for (const TensorEntry& entry : safetensors->index().tensors) bytes += entry.end - entry.begin;
    maps_.push_back(bytes < kLargeBytes ? nullptr : safetensors->map());
  }
}

std::shared_ptr<char> WeightsFile::mapped(std::size_t place) const {
  const auto [file, tensor] = places_[place];
  if (maps_.empty() || !maps_[file]) return nullptr;
  const TensorEntry& entry = std::get<SafetensorsFile>(files_[file]).index().tensors[tensor];
  if (entry.begin == entry.end || entry.begin % size_of(entry.type) != 0) return nullptr;
  return {maps_[file], maps_[file].get() + entry.begin};
}

void WeightsFile::read(std::size_t place, void* out) const {
  const auto [file, tensor] = places_[place];
  if (const auto* torch_file = std::get_if<TorchFile>(&files_[file]))
    return torch_file->read(torch_file->tensors()[tensor], out);
  const auto& safetensors = std::get<SafetensorsFile>(files_[file]);
  const TensorEntry& entry = safetensors.index().tensors[tensor];
  if (entry.end > entry.begin) safetensors.read(entry, out);
}

}  // namespace kindling
