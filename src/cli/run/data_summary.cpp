#include "cli/run/data_summary.h"

#include <ATen/core/Tensor.h>
#include <fnmatch.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "data/loading/window_dataset.h"
#include "kindling/base/checksum.h"
#include "kindling/data/dataset.h"

namespace kindling {
namespace {

using Loader = std::shared_ptr<DataLoader>;

Loader loader_or_none(DataModule& data, Loader (DataModule::*loader)()) try {
  return (data.*loader)();
} catch (const std::exception&) {
  return nullptr;
}

std::vector<std::string> texts_or_none(DataModule& data,
                                       std::vector<std::string> (DataModule::*texts)()) try {
  return (data.*texts)();
} catch (const std::exception&) {
  return {};
}

std::vector<NamedLoader> more_loaders_or_none(DataModule& data) try {
  return data.more_val_dataloaders();
} catch (const std::exception&) {
  return {};
}

std::optional<std::int64_t> size_of(const Loader& loader) {
  return loader && !loader->is_endless() ? std::optional(loader->dataset().size()) : std::nullopt;
}

enum class ChecksumOf : std::uint8_t { values, float32_values };

// False for a tensor without plain bytes, such as a sparse one.
bool add_tensor(const at::Tensor& tensor, Checksum& sum) {
  if (tensor.layout() != at::kStrided || !tensor.device().is_cpu() || tensor.is_quantized()) return false;
  std::string kind = std::string(c10::toString(tensor.scalar_type())) + "[";
  for (const std::int64_t size : tensor.sizes()) kind += std::to_string(size) + ",";
  sum.update(kind + "]");
  const at::Tensor values = tensor.contiguous().resolve_conj().resolve_neg();
  sum.update(values.const_data_ptr(), values.nbytes());
  return true;
}

// In the order of `sets`; empty: see DataSummary.
std::string checksum_of(const std::vector<Loader>& sets, std::int64_t max_bytes, ChecksumOf what) {
  std::vector<std::vector<at::Tensor>> all;
  std::int64_t bytes = 0;
  bool has_doubles = false;
  for (const Loader& set : sets) {
    if (!set) continue;
    all.push_back(tensors_in_memory(set->dataset()));
    if (all.back().empty()) return {};
    for (const at::Tensor& tensor : all.back()) {
      bytes += tensor.numel() * static_cast<std::int64_t>(tensor.element_size());
      has_doubles = has_doubles || tensor.scalar_type() == at::kDouble;
    }
  }
  const bool is_rounded = what == ChecksumOf::float32_values;
  if (all.empty() || bytes > max_bytes || (is_rounded && !has_doubles)) return {};
  Checksum sum;
  for (const std::vector<at::Tensor>& set : all) {
    sum.update(std::to_string(set.size()) + ":");
    for (const at::Tensor& tensor : set)
      if (!add_tensor(is_rounded && tensor.scalar_type() == at::kDouble ? tensor.to(at::kFloat) : tensor,
                      sum))
        return {};
  }
  return sum.hex();
}

}  // namespace

DataSummary summary_of(DataModule& data, std::string name, std::int64_t max_checksum_bytes) {
  const Loader train = loader_or_none(data, &DataModule::train_dataloader),
               val = loader_or_none(data, &DataModule::val_dataloader);
  std::vector<Loader> sets{train, val};
  std::map<std::string, std::int64_t> more_val;
  for (const auto& [set, loader] : more_loaders_or_none(data)) {
    sets.push_back(loader);
    if (const auto size = size_of(loader)) more_val[set] = *size;
  }
  return {.name = std::move(name),
          .train = size_of(train),
          .val = size_of(val),
          .more_val = std::move(more_val),
          .class_names = texts_or_none(data, &DataModule::class_names),
          .skipped = texts_or_none(data, &DataModule::skipped_samples),
          .checksum = checksum_of(sets, max_checksum_bytes, ChecksumOf::values),
          .float32_checksum = checksum_of(sets, max_checksum_bytes, ChecksumOf::float32_values)};
}

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxFiles = 1'000'000;

void add_file(const fs::directory_entry& file, DataFiles& all, fs::file_time_type& latest) {
  std::error_code error;
  const bool is_file = file.is_regular_file(error);
  const std::uintmax_t bytes = is_file ? file.file_size(error) : 0;
  const fs::file_time_type time = file.last_write_time(error);
  if (!is_file || error) return;
  latest = all.count == 0 ? time : std::max(latest, time);
  ++all.count;
  all.bytes += static_cast<std::int64_t>(bytes);
}

// Of a file, a directory, or a pattern in the last part of a path.
DataFiles files_at(const fs::path& path) {
  DataFiles all{.path = path.string()};
  fs::file_time_type latest;
  std::error_code error;
  const std::string pattern = path.filename().string();
  if (fs::is_regular_file(path, error)) {
    add_file(fs::directory_entry(path, error), all, latest);
  } else if (fs::is_directory(path, error)) {
    for (auto file = fs::recursive_directory_iterator(path, error);
         !error && file != fs::recursive_directory_iterator() && all.count < kMaxFiles; file.increment(error))
      add_file(*file, all, latest);
  } else if (pattern.find_first_of("*?[") != std::string::npos) {
    for (auto file = fs::directory_iterator(path.parent_path(), error);
         !error && file != fs::directory_iterator() && all.count < kMaxFiles; file.increment(error))
      if (::fnmatch(pattern.c_str(), file->path().filename().c_str(), 0) == 0) add_file(*file, all, latest);
  }
  if (all.count > 0) all.modified = utc_text(std::chrono::file_clock::to_sys(latest));
  return all;
}

}  // namespace

std::vector<DataFiles> data_files(const std::map<std::string, std::string>& config_values) {
  std::vector<DataFiles> found;
  for (const auto& [key, text] : config_values) {
    if (!key.starts_with("data.")) continue;
    for (std::size_t begin = text.find("\"/"); begin != std::string::npos; begin = text.find("\"/", begin)) {
      const std::size_t end = text.find('"', ++begin);
      if (end == std::string::npos) break;
      DataFiles files = files_at(text.substr(begin, end - begin));
      if (files.count > 0) found.push_back(std::move(files));
      begin = end;
    }
  }
  return found;
}

}  // namespace kindling
