// Small checkpoints whose every byte follows from their step.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_file.h"
#include "kindling/base/number_text.h"
#include "kindling/checkpoint/checkpoint_folder.h"
#include "kindling/formats/safetensors.h"

namespace kindling {

inline std::vector<float> values_at(std::int64_t step, std::size_t size = 60) {
  std::vector<float> values(size);
  for (std::size_t i = 0; i < size; ++i) values[i] = static_cast<float>(step) + 0.25f * static_cast<float>(i);
  return values;
}

inline Metadata metadata_at(std::int64_t step, const std::string& run_id, std::optional<double> value = {}) {
  Metadata metadata = {{saved_keys::kFormatVersion, "1"},
                       {saved_keys::kRunId, run_id},
                       {saved_keys::kGlobalStep, std::to_string(step)},
                       {saved_keys::kEpoch, std::to_string(step / 10)}};
  if (value) {
    metadata[saved_keys::kMonitorName] = "val_loss";
    metadata[saved_keys::kMonitorValue] = number_text(*value);
  }
  return metadata;
}

inline void save_step(const std::filesystem::path& file, std::int64_t step, const std::string& run_id = "run",
                      std::optional<double> value = {}, WithChecksums checksums = WithChecksums::yes) {
  const std::vector<float> values = values_at(step);
  const std::int64_t size = static_cast<std::int64_t>(values.size()) / 2;
  const std::vector<TensorToWrite> tensors = {
      {"model.a", TensorType::float32, {size}, values.data(), values.size() * 2},
      {"model.b", TensorType::float32, {2, size / 2}, values.data() + size, values.size() * 2}};
  write_safetensors(file, tensors, metadata_at(step, run_id, value), checksums);
}

// Whether the file holds just what save_step has written at this step.
inline bool holds_step(const std::filesystem::path& path, std::int64_t step) {
  const SafetensorsFile file(path);
  if (checkpoint_info(file).global_step != step || file.index().tensors.size() != 2) return false;
  std::vector<float> values(values_at(step).size());
  file.read(file.index().tensors[0], values.data());
  file.read(file.index().tensors[1], values.data() + values.size() / 2);
  return values == values_at(step);
}

inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

}  // namespace kindling
