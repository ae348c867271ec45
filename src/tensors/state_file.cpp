#include <torch/nn/module.h>

#include <set>

#include "checkpoint/checkpoint_file.h"
#include "kindling/base/error.h"
#include "kindling/checkpoint/checkpoint_folder.h"
#include "kindling/formats/safetensors.h"
#include "kindling/tensors/checkpoint_file.h"
#include "kindling/tensors/move.h"
#include "kindling/tensors/state_dict.h"
#include "tensors/state_fit.h"

namespace kindling {
namespace {

constexpr std::pair<TensorType, at::ScalarType> kTypes[] = {
    {TensorType::boolean, at::kBool},  {TensorType::uint8, at::kByte},
    {TensorType::int8, at::kChar},     {TensorType::int16, at::kShort},
    {TensorType::int32, at::kInt},     {TensorType::int64, at::kLong},
    {TensorType::float16, at::kHalf},  {TensorType::bfloat16, at::kBFloat16},
    {TensorType::float32, at::kFloat}, {TensorType::float64, at::kDouble},
};

TensorType tensor_type(const at::Tensor& tensor, const std::string& name) {
  for (const auto& [type, scalar] : kTypes)
    if (scalar == tensor.scalar_type()) return type;
  throw CheckpointError(
      {.place = "tensor '" + name + "'",
       .found = std::string("its dtype ") + c10::toString(tensor.scalar_type()) + " cannot be saved",
       .wanted = "bool, an integer or a floating-point dtype"});
}

at::ScalarType scalar_type(TensorType type) {
  for (const auto& [known, scalar] : kTypes)
    if (known == type) return scalar;
  throw CheckpointError({.found = "safetensors: unknown tensor type"});
}

void read_values(const SafetensorsFile& file, const TensorEntry& entry, const at::Tensor& host_tensor) {
  if (entry.end > entry.begin) file.read(entry, host_tensor.mutable_data_ptr());
}

void write_state(const StateDict& state, const std::filesystem::path& path, WithChecksums checksums) {
  std::vector<at::Tensor> on_host;  // keeps the bytes alive until they are written
  std::vector<TensorToWrite> writes;
  for (const auto& [name, tensor] : state.tensors) {
    on_host.push_back(move_to(tensor.detach(), cpu()).contiguous());
    writes.push_back({.name = name,
                      .type = tensor_type(tensor, name),
                      .shape = tensor.sizes().vec(),
                      .data = on_host.back().const_data_ptr(),
                      .size_bytes = on_host.back().nbytes()});
  }
  write_safetensors(path, writes, state.metadata, checksums);
}

StateDict read_state(const SafetensorsFile& file) {
  StateDict state{.tensors = {}, .metadata = file.index().metadata};
  for (const TensorEntry& entry : file.index().tensors) {
    state.tensors.emplace_back(entry.name, at::empty(entry.shape, scalar_type(entry.type)));
    read_values(file, entry, state.tensors.back().second);
  }
  return state;
}

// The one of a folder's checkpoints that a training would go on from.
std::filesystem::path newest_of(const std::filesystem::path& folder) {
  std::set<std::string> runs;
  for (const CheckpointInfo& info : list_checkpoints(folder)) runs.insert(info.run_id);
  if (runs.size() > 1)
    throw CheckpointError({.place = folder.string(),
                           .found = "it holds checkpoints of " + std::to_string(runs.size()) + " trainings",
                           .wanted = "those of one",
                           .remedy = "name the file"});
  const auto newest = newest_valid_checkpoint(folder);
  if (!newest)
    throw CheckpointError({.place = folder.string(),
                           .found = "it holds no checkpoint that is whole",
                           .wanted = "a file step-NNNNNNNN.safetensors",
                           .remedy = "name another folder or a file, or begin a new training"});
  return newest->path;
}

}  // namespace

void save_safetensors(const StateDict& state, const std::filesystem::path& path) {
  write_state(state, path, WithChecksums::no);
}

StateDict load_safetensors(const std::filesystem::path& path) { return read_state(SafetensorsFile(path)); }

void save_checkpoint(const StateDict& state, const std::filesystem::path& path) {
  StateDict marked = state;
  marked.metadata[kFormatVersionKey] = std::to_string(kCheckpointFormatVersion);
  write_state(marked, path, WithChecksums::yes);
}

StateDict load_checkpoint(const std::filesystem::path& path) {
  const bool is_folder = std::filesystem::is_directory(path);
  const SafetensorsFile file(is_folder ? newest_of(path) : path);
  require_checkpoint(file);
  return read_state(file);
}

LoadReport load_weights(torch::nn::Module& module, const std::filesystem::path& path,
                        const LoadOptions& options) {
  const SafetensorsFile file(path);
  StateDict shapes;
  for (const TensorEntry& entry : file.index().tensors)
    shapes.tensors.emplace_back(entry.name,
                                at::empty(entry.shape, at::device(at::kMeta).dtype(scalar_type(entry.type))));
  StateFit fit = fit_state(module, shapes, options, path.string());
  for (const auto& [name, tensor, place] : fit.targets) {
    const TensorEntry& entry = file.index().tensors[place];
    const at::ScalarType type = scalar_type(entry.type);
    if (tensor.is_cpu() && tensor.scalar_type() == type && tensor.is_contiguous()) {
      read_values(file, entry, tensor);
      tensor.unsafeGetTensorImpl()->bump_version();  // for autograd, which did not see the write
    } else {
      const at::Tensor staged = at::empty(entry.shape, type);
      read_values(file, entry, staged);
      write_values(tensor, staged);
    }
  }
  return std::move(fit.report);
}

}  // namespace kindling
