#include "tensors/weights_file.h"

#include <map>
#include <tuple>
#include <utility>

#include "kindling/base/error.h"
#include "kindling/base/json.h"
#include "kindling/base/log.h"
#include "kindling/base/suggest.h"

namespace kindling {
namespace {

void warn_of_skipped(const SafetensorsFile& file) {
  std::vector<std::string> names;
  for (const SkippedTensor& tensor : file.index().skipped)
    names.push_back(json_string(tensor.name.substr(0, 100)) + " (" + tensor.dtype + ")");
  if (names.empty()) return;
  log_warning(file.path().string() + ": skipped tensors of types that LibTorch does not have: " +
              list_names(names) + "; convert them in Python to read them here");
}

}  // namespace

WeightsFile WeightsFile::open(const std::filesystem::path& path, const std::string& key) {
  if (is_torch_file(path)) return WeightsFile(TorchFile(path, key));
  if (key.empty()) return WeightsFile(SafetensorsFile(path));
  throw CheckpointError({.place = path.string(),
                         .found = "it is not a file of torch.save, and only those have keys",
                         .remedy = "omit the key '" + key + "'"});
}

WeightsFile::WeightsFile(SafetensorsFile file) : file_(std::move(file)) {
  warn_of_skipped(std::get<SafetensorsFile>(file_));
  const SafetensorsIndex& index = std::get<SafetensorsFile>(file_).index();
  metadata_ = index.metadata;
  for (const TensorEntry& tensor : index.tensors) {
    first_alike_.push_back(entries_.size());
    entries_.push_back({tensor.name, tensor.type, tensor.shape});
  }
}

WeightsFile::WeightsFile(TorchFile file) : file_(std::move(file)) {
  const auto values_of = [](const TorchTensor& one) {
    return std::tuple(one.storage, one.offset, one.type, one.shape, one.strides);
  };
  std::map<decltype(values_of(TorchTensor())), std::size_t> known;
  for (const TorchTensor& tensor : std::get<TorchFile>(file_).tensors()) {
    first_alike_.push_back(known.try_emplace(values_of(tensor), entries_.size()).first->second);
    entries_.push_back({tensor.name, tensor.type, tensor.shape});
  }
}

void WeightsFile::read(std::size_t place, void* out) const {
  if (const auto* torch_file = std::get_if<TorchFile>(&file_)) {
    torch_file->read(torch_file->tensors()[place], out);
    return;
  }
  const auto& file = std::get<SafetensorsFile>(file_);
  const TensorEntry& entry = file.index().tensors[place];
  if (entry.end > entry.begin) file.read(entry, out);
}

}  // namespace kindling
