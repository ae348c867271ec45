#include "graph/recording/recording.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "graph/recording/operator_effects.h"

namespace kindling {
namespace {

// Larger memory that the host fills again in each run is not compared.
constexpr std::size_t kLargestConstant = std::size_t{1} << 20;

c10::intrusive_ptr<c10::StorageImpl> copy_of(const c10::StorageImpl& storage) {
  auto copy = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), storage.nbytes(),
                                                    c10::GetCPUAllocator(), /*resizable=*/false);
  std::memcpy(copy->mutable_data(), storage.data(), storage.nbytes());
  return copy;
}

bool same_bytes(const c10::StorageImpl& one, const c10::StorageImpl& other) {
  return one.nbytes() == other.nbytes() && std::memcmp(one.data(), other.data(), one.nbytes()) == 0;
}

std::int64_t offset_of(const at::Tensor& tensor) {
  return tensor.storage_offset() * static_cast<std::int64_t>(tensor.element_size());
}

bool same_bits(double one, double other) { return std::memcmp(&one, &other, sizeof one) == 0; }

bool same_constant(const c10::IValue& one, const c10::IValue& other) {
  if (one.isNone()) return other.isNone();
  if (one.isInt()) return other.isInt() && one.toInt() == other.toInt();
  if (one.isBool()) return other.isBool() && one.toBool() == other.toBool();
  if (one.isDouble()) return other.isDouble() && same_bits(one.toDouble(), other.toDouble());
  if (one.isString()) return other.isString() && one.toStringRef() == other.toStringRef();
  if (one.isDevice()) return other.isDevice() && one.toDevice() == other.toDevice();
  if (one.isIntList()) return other.isIntList() && one.toIntVector() == other.toIntVector();
  if (one.isBoolList()) return other.isBoolList() && one.toBoolList() == other.toBoolList();
  if (one.isDoubleList())
    return other.isDoubleList() &&
           std::ranges::equal(one.toDoubleVector(), other.toDoubleVector(), same_bits);
  if (one.isGenerator()) return other.isGenerator() && one.toGenerator() == other.toGenerator();
  return false;
}

bool same_value(const OperatorValue& one, const OperatorValue& other) {
  return one.kind == other.kind && one.places == other.places &&
         (one.kind != OperatorValue::Kind::constant || same_constant(one.constant, other.constant));
}

}  // namespace

std::string Recording::why_not_plain(const at::Tensor& tensor, bool is_new) const {
  const bool is_number = tensor.is_cpu() && tensor.dim() == 0 && !is_new;
  if (tensor.device() != device_ && !is_number) return "it has a tensor on " + tensor.device().str();
  if (tensor.layout() != at::kStrided || !tensor.has_storage() || tensor.is_nested() || tensor.is_quantized())
    return "it has a tensor that is not dense";
  return {};
}

void Recording::refuse(std::string reason) {
  if (refusal.empty()) refusal = std::move(reason);
}

void Recording::add_inputs(std::span<const at::Tensor> inputs) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    // Later batches may not be such views.
    if (inputs[i].is_conj() || inputs[i].is_neg()) return refuse("its batch has a conjugate view");
    if (std::string reason = why_not_plain(inputs[i], /*is_new=*/true); !reason.empty())
      return refuse(std::move(reason));
    if (storage_of(inputs[i])) return refuse("tensors of its batch share memory");
    know(inputs[i]);
    RecordedStorage& storage = storages[add_storage(inputs[i], /*is_new=*/false)];
    storage.input = static_cast<std::int64_t>(i);
    storage.input_offset = offset_of(inputs[i]);
    storage.num_bytes = 0;  // it may belong to a larger tensor
  }
}

void Recording::know(const at::Tensor& tensor) {
  if (tensor.defined() && tensor.has_storage()) known_[tensor.storage().unsafeGetStorageImpl()] = true;
}

std::optional<std::size_t> Recording::storage_of(const at::Tensor& tensor) const {
  if (!tensor.defined() || !tensor.has_storage()) return std::nullopt;
  const auto found = number_of_.find(tensor.storage().unsafeGetStorageImpl());
  return found == number_of_.end() ? std::nullopt : std::optional(found->second);
}

std::size_t Recording::add_storage(const at::Tensor& tensor, bool is_new) {
  c10::StorageImpl* const impl = tensor.storage().unsafeGetStorageImpl();
  RecordedStorage storage{.name = tensor.storage().getWeakStorageImpl(), .num_bytes = impl->nbytes()};
  if (!is_new) {
    storage.is_external = true;
    storage.is_known = known_.contains(impl);
    if (!storage.is_known && tensor.is_cpu() && storage.num_bytes <= kLargestConstant)
      storage.found = copy_of(*impl);
  }
  storages.push_back(std::move(storage));
  number_of_[impl] = storages.size() - 1;
  return storages.size() - 1;
}

std::int64_t Recording::place_of(const at::Tensor& tensor, bool is_new) {
  if (!tensor.defined()) return OperatorValue::kUndefined;
  if (std::string reason = why_not_plain(tensor, is_new); !reason.empty()) {
    refuse(std::move(reason));
    return OperatorValue::kUndefined;
  }
  const auto known = storage_of(tensor);
  const std::size_t storage = known ? *known : add_storage(tensor, is_new);
  TensorLayout place{.storage = storage,
                     .offset = offset_of(tensor) - storages[storage].input_offset,
                     .sizes = tensor.sizes().vec(),
                     .strides = tensor.strides().vec(),
                     .dtype = tensor.scalar_type(),
                     .is_wrapped_number = tensor.unsafeGetTensorImpl()->is_wrapped_number(),
                     .is_conjugate = tensor.is_conj(),
                     .is_negative = tensor.is_neg()};
  const auto [first, last] = places_in_.equal_range(place.storage);
  for (auto at = first; at != last; ++at)
    if (places[static_cast<std::size_t>(at->second)] == place) return at->second;
  const auto number = static_cast<std::int64_t>(places.size());
  places_in_.emplace(place.storage, number);
  places.push_back(std::move(place));
  return number;
}

void Recording::keep_constant(std::size_t number, const at::Tensor& tensor) {
  RecordedStorage& storage = storages[number];
  storage.found = copy_of(*tensor.storage().unsafeGetStorageImpl());
  storage.is_external = storage.is_constant = true;
  storage.is_blank = false;
}

void Recording::add_outputs(std::span<const at::Tensor> results) {
  for (const at::Tensor& result : results) {
    if (result.defined() && !storage_of(result)) refuse("one of its results was not created by an operator");
    outputs.push_back(place_of(result, /*is_new=*/false));
  }
}

void Recording::look_for_owners() {
  for (RecordedStorage& storage : storages)
    storage.has_owner = storage.has_owner || (storage.is_external && storage.name.use_count() > 0);
}

bool Recording::keeps_more_than_outputs() {
  look_for_owners();
  std::vector<bool> may_live(storages.size());
  for (const std::int64_t output : outputs)
    if (output >= 0) may_live[places[static_cast<std::size_t>(output)].storage] = true;
  bool keeps = false;
  for (std::size_t i = 0; i < storages.size(); ++i)
    keeps = keeps || (!storages[i].is_external && !may_live[i] && storages[i].name.use_count() > 0);
  return keeps;
}

std::string difference(const Recording& earlier, Recording& later) {
  const auto same_operator = [](const OperatorCall& a, const OperatorCall& b) { return a.op == b.op; };
  if (!std::ranges::equal(earlier.calls, later.calls, same_operator))
    return "its operators differ from step to step";
  for (std::size_t i = 0; i < earlier.calls.size(); ++i)
    if (!std::ranges::equal(earlier.calls[i].arguments, later.calls[i].arguments, same_value) ||
        !std::ranges::equal(earlier.calls[i].results, later.calls[i].results, same_value))
      return "the arguments of " + earlier.calls[i].op.schema().name() + " differ from step to step";
  if (earlier.places != later.places || earlier.storages.size() != later.storages.size() ||
      earlier.outputs != later.outputs)
    return "its tensors differ from step to step";
  const std::vector<bool> is_written = written_storages(later);
  for (std::size_t i = 0; i < earlier.storages.size(); ++i) {
    const RecordedStorage& a = earlier.storages[i];
    RecordedStorage& b = later.storages[i];
    if (a.input != b.input || a.is_external != b.is_external || a.num_bytes != b.num_bytes)
      return "its tensors differ from step to step";
    if (a.input >= 0 && is_written[i]) return "it changes its batch";
    if (!a.is_external || a.input >= 0 || (a.name == b.name && !a.is_constant)) continue;
    if (a.has_owner || !a.found || !b.found || !same_bytes(*a.found, *b.found))
      return "it reads a different tensor in each step";
    if (is_written[i]) return "it changes memory that the host has written";
    b.is_constant = true;
  }
  return {};
}

}  // namespace kindling
