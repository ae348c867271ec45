// Operators that the fallback cannot do: making tensors, copies, storages, and those whose CPU form LibTorch
// does not take on an accelerator.
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

#include "fake_accelerator_parts.h"

namespace kindling::fake {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

constexpr c10::DispatchKeySet kFakeKeys(c10::DispatchKey::PrivateUse1);

c10::Device resolved(std::optional<c10::Device> asked) {
  return asked && asked->has_index() ? *asked : device(current_device());
}

void check_options(std::optional<c10::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK(layout.value_or(c10::kStrided) == c10::kStrided,
              "the fake accelerator has strided tensors only");
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
}

Tensor empty(at::IntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
             std::optional<c10::Device> on, std::optional<bool> pin_memory,
             std::optional<c10::MemoryFormat> format) {
  check_options(layout, pin_memory);
  const c10::DeviceGuard guard(resolved(on));
  return at::detail::empty_generic(size, device_allocator(), kFakeKeys, c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<c10::ScalarType> dtype,
                     std::optional<c10::Layout> layout, std::optional<c10::Device> on,
                     std::optional<bool> pin_memory) {
  check_options(layout, pin_memory);
  const c10::DeviceGuard guard(resolved(on));
  return at::detail::empty_strided_generic(size, stride, device_allocator(), kFakeKeys,
                                           c10::dtype_or_default(dtype));
}

void count_copy(const Tensor& from, const Tensor& to, bool is_blocking) {
  const std::lock_guard lock(ledger().mutex);
  Counts& counts = ledger().counts;
  const auto nbytes = static_cast<int64_t>(from.nbytes());
  if (from.is_cpu()) {
    ++counts.host_to_device_copies;
    counts.host_to_device_bytes += nbytes;
    counts.blocking_host_to_device_copies += is_blocking ? 1 : 0;
  } else if (to.is_cpu()) {
    ++counts.device_to_host_copies;
    counts.device_to_host_bytes += nbytes;
    counts.blocking_device_to_host_copies += is_blocking ? 1 : 0;
  } else {
    ++counts.device_to_device_copies;
    counts.device_to_device_bytes += nbytes;
    return;
  }
  counts.side_stream_copies += is_on_side_stream((from.is_cpu() ? to : from).device().index()) ? 1 : 0;
}

// Whether a copy between host and device can be left to the device: pinned, and plain bytes.
bool can_be_asynchronous(const Tensor& from, const Tensor& to) {
  const Tensor& host = from.is_cpu() ? from : to;
  return is_pinned(host.storage().data()) && from.is_contiguous() && to.is_contiguous() &&
         from.scalar_type() == to.scalar_type() && from.sizes() == to.sizes() &&
         from.is_conj() == to.is_conj() && from.is_neg() == to.is_neg();
}

void copy_now(const Tensor& from, const Tensor& to) {
  const MemoryAccess access;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  Tensor(cpu_twin(to)).copy_(Tensor(cpu_twin(from)));
}

Tensor copy_from(const Tensor& from, const Tensor& to, bool non_blocking) {
  const bool with_host = from.is_cpu() || to.is_cpu();
  const bool is_blocking = with_host && !(non_blocking && can_be_asynchronous(from, to));
  count_copy(from, to, is_blocking);
  if (with_host && !is_blocking && late_copies()) {
    const Tensor& on_device = from.is_cpu() ? to : from;
    enqueue_late_copy(on_device.device().index(),
                      {on_device.storage(), to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes()});
    return to;
  }
  for (const Tensor& used : {from, to}) {
    if (used.is_cpu()) continue;
    finish_copies_of(used.storage());
    if (is_blocking) finish_current_stream(used.device().index());
  }
  copy_now(from, to);
  return to;
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, /*non_blocking=*/false);
}

// Lets Module::to replace the CPU tensor inside a parameter by a fake one, and back.
bool has_compatible_shallow_copy_type(const Tensor& self, const Tensor& from) {
  return self.layout() == at::kStrided && from.layout() == at::kStrided;
}

Tensor& set_storage(Tensor& self, c10::Storage source, int64_t offset, at::IntArrayRef size,
                    at::IntArrayRef stride) {
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(source));
  if (stride.empty() && !size.empty()) {
    self.unsafeGetTensorImpl()->set_storage_offset(offset);
    self.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  } else {
    self.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride, offset);
  }
  return self;
}

Tensor& set_whole_storage(Tensor& self, c10::Storage source) {
  const auto num_elements = static_cast<int64_t>(source.nbytes() / self.itemsize());
  return set_storage(self, std::move(source), 0, {num_elements}, {});
}

Tensor& set_tensor(Tensor& self, const Tensor& source) {
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

void record_stream(Tensor& /*self*/, c10::Stream /*stream*/) { count(&Counts::recorded_streams); }

// LibTorch takes a fused dropout on accelerators, which rounds otherwise; this is what it does on the CPU.
Tensor dropout(const Tensor& input, double p, bool train) {
  TORCH_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  if (p == 0 || !train || input.numel() == 0) return input;
  if (p == 1) return input.mul(at::zeros({}, input.options()));
  const Tensor noise = at::empty_like(input);
  noise.bernoulli_(1 - p).div_(1 - p);
  return input.mul(noise);
}

// The operator of its own, which has no generator argument that the fallback could swap.
std::tuple<Tensor, Tensor> native_dropout(const Tensor& input, double p, std::optional<bool> train) {
  const bool drops = train.value_or(true);
  const Tensor mask = at::empty_like(input, input.options().dtype(at::kBool));
  if (!drops) return {input.clone(), mask.fill_(true)};
  mask.bernoulli_(1 - p);
  return {input.mul(mask).mul_(p == 1 ? 0.0 : 1.0 / (1.0 - p)), mask};
}

// The fused cells, which LibTorch has for accelerators only, out of differentiable operators: they need no
// backward of their own. The workspace is for that backward and stays empty.
Tensor biased(const Tensor& gates, const OptionalTensor& bias) {
  return bias && bias->defined() ? gates.add(*bias) : gates;
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input_gates, const Tensor& hidden_gates,
                                             const Tensor& cell, const OptionalTensor& input_bias,
                                             const OptionalTensor& hidden_bias) {
  const Tensor gates = biased(hidden_gates, hidden_bias).add(biased(input_gates, input_bias));
  const auto parts = gates.unsafe_chunk(4, 1);
  const Tensor next_cell = parts[1].sigmoid().mul(cell).add(parts[0].sigmoid().mul(parts[2].tanh()));
  return {parts[3].sigmoid().mul(next_cell.tanh()), next_cell, gates.new_empty({0})};
}

std::tuple<Tensor, Tensor> gru_cell(const Tensor& input_gates, const Tensor& hidden_gates,
                                    const Tensor& hidden, const OptionalTensor& input_bias,
                                    const OptionalTensor& hidden_bias) {
  const auto from_input = biased(input_gates, input_bias).unsafe_chunk(3, 1);
  const auto from_hidden = biased(hidden_gates, hidden_bias).unsafe_chunk(3, 1);
  const Tensor reset = from_hidden[0].add(from_input[0]).sigmoid();
  const Tensor update = from_hidden[1].add(from_input[1]).sigmoid();
  const Tensor fresh = from_input[2].add(from_hidden[2].mul(reset)).tanh();
  return {hidden.sub(fresh).mul(update).add(fresh), hidden.new_empty({0})};
}

}  // namespace

void register_kernels(torch::Library& aten, torch::Library& aten_autograd) {
  aten.impl("empty.memory_format", &empty);
  aten.impl("empty_strided", &empty_strided);
  aten.impl("_copy_from", &copy_from);
  aten.impl("_copy_from_and_resize", &copy_from_and_resize);
  aten.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
  aten.impl("set_.source_Storage_storage_offset", &set_storage);
  aten.impl("set_.source_Storage", &set_whole_storage);
  aten.impl("set_.source_Tensor", &set_tensor);
  aten.impl("record_stream", &record_stream);
  aten.impl("native_dropout", &native_dropout);
  for (torch::Library* library : {&aten, &aten_autograd}) {
    library->impl("dropout", &dropout);
    library->impl("_thnn_fused_lstm_cell", &lstm_cell);
    library->impl("_thnn_fused_gru_cell", &gru_cell);
  }
}

}  // namespace kindling::fake
