#include "graph/replay/replay_builder.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <string>
#include <utility>

#include "graph/kernels/native_kernel.h"
#include "graph/nodes/out_operator.h"
#include "graph/recording/operator_kinds.h"

namespace kindling {
namespace {

// Memory that is allocated when it is needed.
c10::Storage empty_storage(std::size_t num_bytes) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), num_bytes,
                                                            at::DataPtr(nullptr, at::kCPU), nullptr,
                                                            /*resizable=*/false));
}

c10::Storage memory_for(const RecordedStorage& recorded) {
  if (!recorded.is_external || recorded.input >= 0) return empty_storage(recorded.num_bytes);
  if (recorded.is_constant) return c10::Storage(recorded.found);
  const auto storage = recorded.name.lock();
  TORCH_CHECK(storage, "a tensor that it reads no longer exists");
  if (recorded.is_known) return c10::Storage(storage);
  // A second storage for the same memory, which shows whether the first has other owners.
  const c10::Storage again = empty_storage(recorded.num_bytes);
  again.unsafeGetStorageImpl()->set_data_ptr_noswap(at::DataPtr(storage->mutable_data(), at::kCPU));
  return again;
}

}  // namespace

ReplayBuilder::ReplayBuilder(const Recording& recording, NativeKernels kernels)
    : recording_(recording),
      kernels_(kernels),
      is_output_(recording.storages.size()),
      shared_with_(recording.storages.size()),
      tensors_(recording.places.size()) {
  for (const OperatorCall& call : recording.calls) effects_.push_back(effects_of(recording, call));
  std::vector<std::size_t> of_outputs;
  for (const std::int64_t output : recording.outputs)
    if (output >= 0) of_outputs.push_back(recording.places[static_cast<std::size_t>(output)].storage);
  for (const std::size_t number : of_outputs) is_output_[number] = true;
  is_needed_ = needed_calls(recording, effects_, of_outputs);
  for (std::size_t i = 0; i < shared_with_.size(); ++i) shared_with_[i] = i;
  share_copies();
  for (const RecordedStorage& storage : recording.storages) storages_.push_back(memory_for(storage));
  for (std::size_t i = 0; i < storages_.size(); ++i) storages_[i] = storages_[shared_with_[i]];
}

bool ReplayBuilder::touches(std::size_t call, std::size_t storage) const {
  return std::ranges::count(effects_[call].reads, storage) > 0 ||
         std::ranges::count(effects_[call].makes, storage) > 0;
}

bool ReplayBuilder::is_whole(const TensorLayout& place) const {
  const RecordedStorage& storage = recording_.storages[place.storage];
  std::size_t num_bytes = c10::elementSize(place.dtype);
  for (const std::int64_t size : place.sizes) num_bytes *= static_cast<std::size_t>(size);
  return !storage.is_external && place.offset == 0 && num_bytes == storage.num_bytes;
}

// A result that is only copied as a whole to its destination is created there.
void ReplayBuilder::share_copies() {
  for (std::size_t i = 0; i < recording_.calls.size(); ++i)
    if (is_needed_[i] && recording_.calls[i].op.schema().name() == "aten::copy_") share_copy(i);
}

void ReplayBuilder::share_copy(std::size_t number) {
  const auto place_of = [&](std::size_t argument) -> const TensorLayout& {
    const auto& places = recording_.calls[number].arguments[argument].places;
    return recording_.places[static_cast<std::size_t>(places.front())];
  };
  const TensorLayout &to = place_of(0), &from = place_of(1);
  TensorLayout moved = from;
  moved.storage = to.storage;
  if (to.storage == from.storage || moved != to || !is_whole(to) || !is_whole(from) ||
      is_output_[from.storage] || shared_with_[to.storage] != to.storage)
    return;
  std::optional<std::size_t> maker;
  for (std::size_t i = 0; i < recording_.calls.size(); ++i) {
    if (!is_needed_[i] || i == number) continue;
    if (i > number && touches(i, from.storage)) return;
    if (i > number || !touches(i, to.storage)) continue;
    if (maker || !only_makes_memory(recording_.calls[i].op)) return;
    maker = i;
  }
  if (!maker) return;
  is_needed_[number] = is_needed_[*maker] = false;
  for (std::size_t& storage : shared_with_)
    if (storage == from.storage) storage = to.storage;
}

at::Tensor ReplayBuilder::tensor(std::int64_t number) {
  if (number == OperatorValue::kUndefined) return {};
  at::Tensor& tensor = tensors_[static_cast<std::size_t>(number)];
  if (tensor.defined()) return tensor;
  const TensorLayout& place = recording_.places[static_cast<std::size_t>(number)];
  tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storages_[place.storage]),
                                                    c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                    c10::scalarTypeToTypeMeta(place.dtype));
  const std::int64_t item = static_cast<std::int64_t>(c10::elementSize(place.dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(place.sizes, place.strides, place.offset / item);
  if (place.is_wrapped_number) tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  if (place.is_conjugate) tensor._set_conj(true);
  if (place.is_negative) tensor._set_neg(true);
  return tensor;
}

c10::IValue ReplayBuilder::argument(const OperatorValue& value) {
  using Kind = OperatorValue::Kind;
  if (value.kind == Kind::constant) return value.constant;
  if (value.kind == Kind::tensor) return tensor(value.places.front());
  if (value.kind == Kind::tensor_list) {
    c10::List<at::Tensor> list;
    for (const std::int64_t place : value.places) list.push_back(tensor(place));
    return list;
  }
  c10::List<std::optional<at::Tensor>> list;
  for (const std::int64_t place : value.places) {
    const at::Tensor item = tensor(place);
    list.push_back(item.defined() ? std::optional(item) : std::nullopt);
  }
  return list;
}

torch::jit::Stack ReplayBuilder::arguments(const OperatorCall& call) {
  torch::jit::Stack stack;
  for (const OperatorValue& value : call.arguments) stack.push_back(argument(value));
  return stack;
}

std::vector<at::Tensor> ReplayBuilder::results(const OperatorCall& call) {
  std::vector<at::Tensor> tensors;
  for (const OperatorValue& result : call.results)
    if (result.kind == OperatorValue::Kind::constant)
      tensors.emplace_back();
    else
      for (const std::int64_t place : result.places) tensors.push_back(tensor(place));
  return tensors;
}

ReplayBuilder::Nodes ReplayBuilder::nodes_of(std::size_t number) {
  const OperatorCall& call = recording_.calls[number];
  const OperatorEffects& effects = effects_[number];
  Nodes nodes{.call = number};
  if (effects.makes.empty()) {
    nodes.writing = std::make_unique<OutVariantNode>(call.op, arguments(call));
    return nodes;
  }
  for (const std::size_t storage : effects.makes) nodes.made.push_back(shared_with_[storage]);
  if (only_makes_memory(call.op)) return nodes;
  nodes.results = results(call);
  nodes.making = std::make_unique<FunctionalNode>(call.op, arguments(call), nodes.results);
  const bool are_defined = std::ranges::all_of(call.results, [](const OperatorValue& result) {
    return result.kind == OperatorValue::Kind::tensor && result.places.front() >= 0;
  });
  if (!are_defined || !effects.writes.empty()) return nodes;
  torch::jit::Stack stack = arguments(call);
  if (kernels_ != NativeKernels::off) nodes.native = native_kernel(call.op, stack, nodes.results);
  if (const auto out = out_operator(call.op)) {
    for (const at::Tensor& result : nodes.results) stack.push_back(result);
    nodes.writing = std::make_unique<OutVariantNode>(*out, std::move(stack));
  }
  return nodes;
}

std::vector<ReplayBuilder::Nodes> ReplayBuilder::nodes() {
  std::vector<Nodes> nodes;
  for (std::size_t i = 0; i < recording_.calls.size(); ++i)
    if (is_needed_[i]) nodes.push_back(nodes_of(i));
  return nodes;
}

std::vector<at::Tensor> ReplayBuilder::changed() {
  std::vector<at::Tensor> tensors;
  std::vector<bool> has(recording_.storages.size());
  for (std::size_t i = 0; i < effects_.size(); ++i)
    for (const std::size_t storage : effects_[i].writes) {
      const RecordedStorage& of = recording_.storages[storage];
      if (!is_needed_[i] || !of.is_external || of.input >= 0 || has[storage]) continue;
      has[storage] = true;
      tensors.push_back(at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storages_[storage]),
                                                                 c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                                 c10::scalarTypeToTypeMeta(at::kByte)));
      tensors.back().unsafeGetTensorImpl()->set_sizes_contiguous(
          {static_cast<std::int64_t>(storages_[storage].nbytes())});
    }
  return tensors;
}

std::vector<ReplayBuilder::Result> ReplayBuilder::all_results(bool are_outputs) const {
  std::vector<Result> found;
  std::vector<std::optional<MemoryNeed>> needs(recording_.storages.size());
  const auto use = [&](std::size_t storage, std::size_t call) {
    const std::size_t memory = shared_with_[storage];
    auto& need = needs[memory];
    if (!need)
      need = MemoryNeed{.num_bytes = recording_.storages[memory].num_bytes, .first = call, .last = call};
    need->last = call;
  };
  for (std::size_t i = 0; i < effects_.size(); ++i) {
    if (!is_needed_[i]) continue;
    for (const std::size_t storage : effects_[i].reads) use(storage, i);
    for (const std::size_t storage : effects_[i].makes) use(storage, i);
  }
  for (std::size_t i = 0; i < needs.size(); ++i)
    if (needs[i] && !recording_.storages[i].is_external && is_output_[i] == are_outputs)
      found.push_back({i, *needs[i]});
  return found;
}

}  // namespace kindling
