#include <ATen/ops/from_blob.h>
#include <torch/nn/module.h>

#include <cstring>
#include <memory>
#include <set>

#include "checkpoint/checkpoint_file.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/checkpoint/checkpoint_folder.h"
#include "kindling/formats/safetensors.h"
#include "kindling/tensors/checkpoint_file.h"
#include "kindling/tensors/move.h"
#include "kindling/tensors/state_dict.h"
#include "tensors/host_values.h"
#include "tensors/scalar_types.h"
#include "tensors/state_fit.h"
#include "tensors/state_tensors.h"
#include "tensors/validated_weights.h"
#include "tensors/weights_file.h"

namespace kindling {
namespace {

TensorType tensor_type(const at::Tensor& tensor, const std::string& name) {
  if (const auto type = tensor_type_of(tensor.scalar_type())) return *type;
  throw CheckpointError(
      {.place = "tensor '" + name + "'",
       .found = std::string("its dtype ") + c10::toString(tensor.scalar_type()) + " cannot be saved",
       .wanted = "bool, an integer, a floating-point dtype or ComplexFloat"});
}

void write_state(const StateDict& state, const std::filesystem::path& path) {
  write_safetensors(path, HostTensors(state).writes, state.metadata, WithChecksums::yes);
}

// Returns the checkpoint in a directory that a run would resume from.
std::filesystem::path newest_of(const std::filesystem::path& folder) {
  std::set<std::string> runs;
  for (const CheckpointInfo& info : list_checkpoints(folder)) runs.insert(info.run_id);
  if (runs.size() > 1)
    throw CheckpointError({.place = folder.string(),
                           .found = "it contains checkpoints of " + std::to_string(runs.size()) + " runs",
                           .wanted = "checkpoints of one run",
                           .remedy = "pass the path of a checkpoint file"});
  const auto newest = newest_valid_checkpoint(folder);
  if (!newest)
    throw CheckpointError({.place = folder.string(),
                           .found = "it contains no valid checkpoint",
                           .wanted = "a file step-NNNNNNNN.safetensors",
                           .remedy = "pass another directory or a file, or start a new run"});
  return newest->path;
}

void require_path(const std::filesystem::path& path, const char* place) {
  if (path.empty())
    throw CheckpointError({.place = place,
                           .found = "the path is empty",
                           .wanted = "a file",
                           .remedy = "FitResult::best_checkpoint is empty if the fit has saved no checkpoint "
                                     "with the monitored value"});
}

// Returns the checkpoint for a path: the file itself, or the newest one in a directory.
std::filesystem::path checkpoint_path(const std::filesystem::path& path, const char* place) {
  require_path(path, place);
  return std::filesystem::is_directory(path) ? newest_of(path) : path;
}

// Opens a file with a model and its training state, with checksums or without them.
SafetensorsFile open_training_state(const std::filesystem::path& path) {
  SafetensorsFile file(checkpoint_path(path, "load_validated_weights"));
  if (!file.index().metadata.contains(saved_keys::kGlobalStep))
    throw CheckpointError({.place = file.path().string(),
                           .found = std::string("its metadata has no ") + saved_keys::kGlobalStep,
                           .wanted = "a checkpoint",
                           .remedy = "use load_weights() for weight files"});
  return file;
}

// A tensor whose memory is a part of a mapped file, and keeps it.
at::Tensor tensor_in(const std::shared_ptr<char>& mapped, const WeightsFile::Entry& entry) {
  return at::from_blob(
      mapped.get(), entry.shape, [mapped](void*) {}, at::dtype(scalar_type_of(entry.type)));
}

}  // namespace

HostTensors::HostTensors(const StateDict& state) {
  for (const auto& [name, tensor] : state.tensors) {
    held.push_back(host_values(tensor));
    writes.push_back({.name = name,
                      .type = tensor_type(tensor, name),
                      .shape = tensor.sizes().vec(),
                      .data = held.back().const_data_ptr(),
                      .size_bytes = held.back().nbytes()});
  }
}

StateDict read_state(const WeightsFile& file) {
  StateDict state{.tensors = {}, .metadata = file.metadata()};
  for (std::size_t i = 0; i < file.entries().size(); ++i) {
    const WeightsFile::Entry& entry = file.entries()[i];
    const std::size_t first = entry.first_alike;
    const std::shared_ptr<char> mapped = first == i ? file.mapped(i) : nullptr;
    state.tensors.emplace_back(entry.name, first < i ? state.tensors[first].second
                                           : mapped  ? tensor_in(mapped, entry)
                                                     : at::empty(entry.shape, scalar_type_of(entry.type)));
    if (first == i && !mapped) file.read(i, state.tensors[i].second.mutable_data_ptr());
  }
  return state;
}

StateDict read_or_map_state(WeightsFile file) {
  file.map_large_files();
  return read_state(file);
}

std::string state_bytes(const StateDict& state) {
  return serialize_safetensors(HostTensors(state).writes, state.metadata);
}

StateDict state_of_bytes(const std::string& bytes, const std::string& place) {
  const SafetensorsIndex index = parse_safetensors(bytes, place);
  StateDict state{.tensors = {}, .metadata = index.metadata};
  for (const TensorEntry& entry : index.tensors) {
    const at::Tensor tensor = at::empty(entry.shape, scalar_type_of(entry.type));
    if (tensor.numel() > 0)
      std::memcpy(tensor.mutable_data_ptr(), bytes.data() + entry.begin, entry.end - entry.begin);
    state.tensors.emplace_back(entry.name, tensor);
  }
  return state;
}

void save_safetensors(const StateDict& state, const std::filesystem::path& path) { write_state(state, path); }

StateDict load_safetensors(const std::filesystem::path& path) {
  require_path(path, "load_safetensors");
  return read_or_map_state(WeightsFile(SafetensorsFile(path)));
}

void save_torch(const StateDict& state, const std::filesystem::path& path) {
  write_torch_file(path, HostTensors(state).writes);
}

StateDict load_state_file(const std::filesystem::path& path, const std::string& key) {
  require_path(path, "load_state_file");
  return read_or_map_state(WeightsFile::open(path, key));
}

void save_checkpoint(const StateDict& state, const std::filesystem::path& path) {
  StateDict marked = state;
  marked.metadata[saved_keys::kFormatVersion] = std::to_string(kCheckpointFormatVersion);
  write_state(marked, path);
}

StateDict load_checkpoint(const std::filesystem::path& path) {
  const SafetensorsFile file(checkpoint_path(path, "load_checkpoint"));
  require_checkpoint(file);
  return read_state(WeightsFile(file));
}

StateDict validated_weights(const std::filesystem::path& path) {
  const StateDict saved = read_state(WeightsFile(open_training_state(path)));
  StateDict weights = renamed(saved, {.prefix = saved_keys::kModel}, path.string());
  const auto averages = saved.metadata.find(saved_keys::kAverages);
  if (averages == saved.metadata.end()) return weights;
  for (auto& [name, tensor] : weights.tensors)
    if (const at::Tensor* average = saved.find(averages->second + name))
      tensor = average->to(tensor.scalar_type());
  return weights;
}

LoadReport load_validated_weights(torch::nn::Module& module, const std::filesystem::path& path) {
  const SafetensorsFile file = open_training_state(path);
  // Without averages at most one tensor at a time is held in memory.
  if (!file.index().metadata.contains(saved_keys::kAverages))
    return load_weights(module, file.path(), {.prefix = saved_keys::kModel});
  return load_state_dict(module, validated_weights(file.path()), path.string());
}

LoadReport load_weights(torch::nn::Module& module, const std::filesystem::path& path,
                        const LoadOptions& options) {
  require_path(path, "load_weights");
  const WeightsFile file = WeightsFile::open(path, options.key);
  if (options.prefix == saved_keys::kModel && file.metadata().contains(saved_keys::kAverages))
    log_warning(
        path.string() +
        ": validation measured averaged weights (EMA or SWA), but load_weights reads the weights that were "
        "trained; load_validated_weights() loads the averages");
  StateDict shapes;
  std::size_t num_required = 0;
  for (const WeightsFile::Entry& entry : file.entries()) {
    shapes.tensors.emplace_back(
        entry.name, at::empty(entry.shape, at::device(at::kMeta).dtype(scalar_type_of(entry.type))));
    if (!entry.is_alias) num_required = shapes.tensors.size();
  }
  StateFit fit = fit_state(module, shapes, options, path.string(), num_required);
  for (const auto& [name, tensor, place] : fit.targets) {
    const WeightsFile::Entry& entry = file.entries()[place];
    const at::ScalarType type = scalar_type_of(entry.type);
    if (has_plain_bytes(tensor) && tensor.scalar_type() == type) {
      file.read(place, tensor.mutable_data_ptr());
      tensor.unsafeGetTensorImpl()->bump_version();  // for autograd, which did not see the write
    } else {
      const at::Tensor staged = at::empty(entry.shape, type);
      file.read(place, staged.mutable_data_ptr());
      write_values(tensor, staged);
    }
  }
  return std::move(fit.report);
}

namespace {

// A small tensor is copied faster than an operator is called; large ones are copied by several threads.
bool can_be_copied_at_once(const at::Tensor& target, const at::Tensor& values) {
  constexpr std::size_t kSmallBytes = std::size_t{1} << 17;
  const std::size_t bytes = values.nbytes();
  return 0 < bytes && bytes <= kSmallBytes && has_plain_bytes(values) && has_plain_bytes(target);
}

// Of the same shape and dtype.
void copy_values(const at::Tensor& host_target, const at::Tensor& values) {
  if (can_be_copied_at_once(host_target, values))
    std::memcpy(host_target.mutable_data_ptr(), values.const_data_ptr(), values.nbytes());
  else
    write_values(host_target, values.detach());
}

}  // namespace

void StateCopy::take(const StateDict& state) {
  auto former = std::exchange(copy_.tensors, {});
  copy_.metadata = state.metadata;
  for (std::size_t i = 0; i < state.tensors.size(); ++i) {
    const auto& [name, tensor] = state.tensors[i];
    const bool fits = i < former.size() && former[i].first == name &&
                      former[i].second.sizes() == tensor.sizes() &&
                      former[i].second.scalar_type() == tensor.scalar_type();
    if (fits) copy_values(former[i].second, tensor);
    copy_.tensors.emplace_back(name, fits ? former[i].second : copy_to(tensor.detach(), cpu()));
  }
}

}  // namespace kindling
