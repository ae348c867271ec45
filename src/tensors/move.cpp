#include "kindling/tensors/move.h"

#include <torch/nn/module.h>

#include "kindling/base/error.h"
#include "kindling/device/transfer_counts.h"

namespace kindling {
namespace {

void count_copy(const at::Tensor& from, Device to, bool waits) {
  TransferCounts& counts = transfer_counts();
  const auto bytes = static_cast<std::int64_t>(from.nbytes());
  if (from.device().is_cpu() && !to.is_cpu()) {
    ++counts.host_to_device_copies;
    counts.host_to_device_bytes += bytes;
  } else if (!from.device().is_cpu() && to.is_cpu()) {
    ++counts.device_to_host_copies;
    counts.device_to_host_bytes += bytes;
  } else {
    return;
  }
  if (waits) ++counts.host_waits;
}

// The host need not wait for a copy out of pinned memory; every other copy to or from the host waits.
bool is_asynchronous(const at::Tensor& tensor, Device to) {
  return tensor.device().is_cpu() && !to.is_cpu() && tensor.is_pinned();
}

// `cuda` without an index means the current GPU.
bool is_on(const at::Tensor& tensor, Device device) {
  return tensor.device().type() == device.type() &&
         (!device.has_index() || tensor.device().index() == device.index());
}

}  // namespace

at::Tensor copy_to(const at::Tensor& tensor, Device device) {
  const bool asynchronous = is_asynchronous(tensor, device);
  count_copy(tensor, device, !asynchronous);
  return tensor.to(device, tensor.scalar_type(), asynchronous, /*copy=*/true);
}

Batch copy_to(const Batch& batch, Device device) {
  Batch copy = batch;
  for (std::size_t i = 0; i < copy.tensors().size(); ++i)
    copy.tensors()[i] = copy_to(batch.tensors()[i], batch.stays_on_host(i) ? cpu() : device);
  return copy;
}

std::shared_ptr<torch::nn::Module> copy_to(const torch::nn::Module& module, Device device) {
  try {
    auto copy = module.clone(device);
    for (const auto& tensor : module.parameters()) count_copy(tensor, device, true);
    for (const auto& tensor : module.buffers()) count_copy(tensor, device, true);
    return copy;
  } catch (const c10::Error& error) {
    throw Error({.place = "copy_to(" + module.name() + ")",
                 .found = std::string("the module cannot be cloned (") + error.what_without_backtrace() + ")",
                 .wanted = "a module that derives from torch::nn::Cloneable",
                 .remedy = "create a second module and load the first one's state_dict into it"});
  }
}

at::Tensor move_to(const at::Tensor& tensor, Device device) {
  return is_on(tensor, device) ? tensor : copy_to(tensor, device);
}

Batch move_to(Batch batch, Device device) {
  for (std::size_t i = 0; i < batch.tensors().size(); ++i)
    if (!batch.stays_on_host(i)) batch.tensors()[i] = move_to(batch.tensors()[i], device);
  if (batch.random_numbers().defined()) batch.set_random_numbers(move_to(batch.random_numbers(), device));
  return batch;
}

void move_to(torch::nn::Module& module, Device device) {
  bool moves = false;
  const auto count = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || is_on(tensor, device)) return;
    moves = true;
    count_copy(tensor, device, /*waits=*/true);
  };
  for (const auto& tensor : module.parameters()) count(tensor);
  for (const auto& tensor : module.buffers()) count(tensor);
  if (moves) module.to(device);
}

void write_values(const at::Tensor& target, const at::Tensor& values) {
  const at::NoGradGuard no_grad;
  // Between devices LibTorch would convert in host memory first: the bytes moved would differ from the count.
  const bool converts = values.scalar_type() != target.scalar_type();
  const at::Tensor from = converts ? move_to(values, target.device()) : values;
  const bool asynchronous = is_asynchronous(from, target.device());
  count_copy(from, target.device(), !asynchronous);
  target.copy_(from, asynchronous);
}

void require_same_device(const at::Tensor& a, const at::Tensor& b, const char* place) {
  if (a.device() == b.device()) return;
  throw DeviceError(
      {.place = place,
       .found = "one tensor is on " + a.device().str() + ", the other on " + b.device().str(),
       .wanted = "both on the same device",
       .remedy = "move one with move_to(tensor, device) or let prepare_batch and prepare_model do it"});
}

}  // namespace kindling
