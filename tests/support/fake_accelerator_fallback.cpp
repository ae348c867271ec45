// The fallback that computes every operator without a kernel of its own: each fake tensor gets a CPU twin
// over the same bytes, the CPU's kernel runs on the twins, and new results move to the device. Unlike
// LibTorch's own CPU fallback it copies nothing in, keeps views views, and refuses mixed devices.
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/TensorBody.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_set>

#include "fake_accelerator_parts.h"

namespace kindling::fake {
namespace {

using c10::IValue;
using c10::OperatorHandle;
using torch::jit::Stack;

bool is_fake(const at::Tensor& tensor) { return tensor.defined() && tensor.device().is_privateuseone(); }

// Calls visit(tensor) for each tensor in the argument, lists and absent ones included.
template <class Visit>
void for_each_tensor(const IValue& value, Visit&& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) visit(tensor);
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      visit(tensor.value_or(at::Tensor()));
  }
}

// The same value with each tensor replaced by replace(tensor).
template <class Replace>
IValue with_tensors_replaced(const IValue& value, Replace&& replace) {
  if (value.isTensor()) return replace(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(replace(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const auto& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor ? std::optional(replace(*tensor)) : std::nullopt);
    }
    return list;
  }
  return value;
}

// A pure view: a result that shares an argument's bytes, none written. Such an operator touches no data.
bool is_view(const c10::FunctionSchema& schema) {
  const auto shares_unwritten = [](const c10::Argument& argument) {
    return argument.alias_info() != nullptr && !argument.alias_info()->isWrite();
  };
  return !schema.returns().empty() && shares_unwritten(schema.returns()[0]);
}

bool is_generator(const c10::Argument& argument) {
  c10::TypePtr type = argument.type();
  if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  return type->kind() == c10::TypeKind::GeneratorType;
}

// Indexing by a mask asks the device for the number of elements, except where one value is written under the
// mask.
bool indexes_by_mask(const std::string& name, c10::ArrayRef<IValue> arguments) {
  if (arguments.size() < 2 || !arguments[1].isOptionalTensorList()) return false;
  const bool fills = name.find("index_put") != std::string::npos && arguments[2].toTensor().numel() == 1 &&
                     !arguments[3].toBool();
  bool by_mask = false;
  for_each_tensor(arguments[1], [&](const at::Tensor& index) {
    by_mask |= is_fake(index) && (index.scalar_type() == at::kBool || index.scalar_type() == at::kByte);
  });
  return by_mask && !fills;
}

bool is_data_dependent(const std::string& name, c10::ArrayRef<IValue> arguments) {
  static const auto* const names = new std::unordered_set<std::string>{
      "aten::nonzero",  "aten::masked_select", "aten::_unique",
      "aten::_unique2", "aten::unique_dim",    "aten::unique_consecutive",
      "aten::bincount", "aten::equal",         "aten::unique_dim_consecutive"};
  if (names->count(name) > 0) return true;
  if (name == "aten::repeat_interleave") return arguments.size() < 2 || arguments[1].isNone();
  return indexes_by_mask(name, arguments);
}

// What the CPU's kernels take and CUDA's do not.
void refuse_as_cuda_does(const std::string& name, c10::ArrayRef<IValue> arguments) {
  if (name != "aten::_amp_foreach_non_finite_check_and_unscale_") return;
  for_each_tensor(arguments[0], [](const at::Tensor& tensor) {
    TORCH_CHECK(tensor.scalar_type() != at::kBFloat16,
                "\"_amp_foreach_non_finite_check_and_unscale_cuda\" not implemented for 'BFloat16'");
  });
}

// CPU tensors over the bytes of fake ones, for one call.
class Twins {
 public:
  explicit Twins(Capture* capture = nullptr) : capture_(capture) {}

  at::Tensor twin_of(const at::Tensor& tensor) {
    if (!is_fake(tensor)) return tensor;
    auto& twin = twins_[tensor.unsafeGetTensorImpl()];
    if (!twin.defined()) {
      twin = at::detail::make_tensor<c10::TensorImpl>(
          cpu_storage_of(tensor), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
      auto* impl = twin.unsafeGetTensorImpl();
      impl->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
      if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
      if (tensor.is_conj()) twin._set_conj(true);
      if (tensor.is_neg()) twin._set_neg(true);
      originals_[impl] = tensor;
    }
    return twin;
  }

  // What the kernel did to its arguments but not to their bytes: sizes, strides, a larger or another storage.
  void write_back(c10::DeviceIndex device) {
    for (auto& [cpu, fake] : storages_) {
      if (cpu->data() == fake.cpu_data) continue;
      fake.storage.set_data_ptr_noswap(copied_to(device, *cpu));
      fake.storage.set_nbytes(cpu->nbytes());
    }
    for (auto& [impl, tensor] : originals_) {
      auto* original = tensor.unsafeGetTensorImpl();
      const c10::Storage& storage = fake_storage_of(impl->storage(), device).storage;
      if (!storage.is_alias_of(original->storage())) original->set_storage_keep_dtype(storage);
      original->set_sizes_and_strides(impl->sizes(), impl->strides(), impl->storage_offset());
    }
  }

  at::Tensor to_fake(const at::Tensor& cpu, c10::DeviceIndex device) {
    if (!cpu.defined()) return cpu;
    TORCH_CHECK(cpu.layout() == at::kStrided, "the fake accelerator has strided tensors only, not ",
                cpu.layout());
    auto& fake = originals_[cpu.unsafeGetTensorImpl()];
    if (!fake.defined()) {
      const FakeStorage& source = fake_storage_of(cpu.storage(), device);
      // A view takes the keys of its base, so that it is an inference tensor only where the base is one.
      fake = source.base_keys
                 ? at::detail::make_tensor<c10::TensorImpl>(
                       c10::TensorImpl::VIEW, c10::Storage(source.storage), *source.base_keys, cpu.dtype())
                 : at::detail::make_tensor<c10::TensorImpl>(
                       c10::Storage(source.storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                       cpu.dtype());
      fake.unsafeGetTensorImpl()->set_sizes_and_strides(cpu.sizes(), cpu.strides(), cpu.storage_offset());
      keep_alive_.push_back(cpu);
    }
    return fake;
  }

 private:
  struct FakeStorage {
    c10::Storage storage;
    std::optional<c10::DispatchKeySet> base_keys;  // set when an argument owns the storage
    const void* cpu_data = nullptr;                // before the call
  };

  c10::Storage cpu_storage_of(const at::Tensor& tensor) {
    const c10::Storage& storage = tensor.storage();
    c10::Storage& cpu = cpu_storages_[storage.unsafeGetStorageImpl()];
    if (!cpu && capture_ != nullptr) {
      cpu = capture_->shadow_of(storage);
      storages_[cpu.unsafeGetStorageImpl()] = {storage, tensor.key_set(), cpu.data()};
    } else if (!cpu) {
      at::DataPtr borrowed(const_cast<void*>(storage.data()), c10::Device(c10::DeviceType::CPU));
      cpu = c10::Storage(c10::Storage::use_byte_size_t(), storage.nbytes(), std::move(borrowed),
                         c10::GetCPUAllocator(), /*resizable=*/true);
      storages_[cpu.unsafeGetStorageImpl()] = {storage, tensor.key_set(), cpu.data()};
    }
    return cpu;
  }

  const FakeStorage& fake_storage_of(const c10::Storage& cpu, c10::DeviceIndex device) {
    FakeStorage& fake = storages_[cpu.unsafeGetStorageImpl()];
    if (!fake.storage) {
      fake.storage = c10::Storage(c10::Storage::use_byte_size_t(), cpu.nbytes(),
                                  copied_to(device, *cpu.unsafeGetStorageImpl()), device_allocator(),
                                  /*resizable=*/true);
      fake.cpu_data = cpu.data();
      cpu_storages_[fake.storage.unsafeGetStorageImpl()] = cpu;
      if (capture_ != nullptr) capture_->own(fake.storage, cpu);
    }
    return fake;
  }

  at::DataPtr copied_to(c10::DeviceIndex device, const c10::StorageImpl& cpu) const {
    at::DataPtr data = allocate_on(device, cpu.nbytes());
    if (cpu.nbytes() > 0 && capture_ == nullptr) std::memcpy(data.get(), cpu.data(), cpu.nbytes());
    return data;
  }

  Capture* const capture_;
  std::unordered_map<c10::TensorImpl*, at::Tensor> twins_;            // by fake tensor
  std::unordered_map<c10::TensorImpl*, at::Tensor> originals_;        // by CPU tensor
  std::unordered_map<c10::StorageImpl*, c10::Storage> cpu_storages_;  // by fake storage
  std::unordered_map<c10::StorageImpl*, FakeStorage> storages_;       // by CPU storage
  std::vector<at::Tensor> keep_alive_;                                // CPU results, whose addresses are keys
};

// One operator's call on the CPU.
class TwinCall {
 public:
  TwinCall(const OperatorHandle& op, Stack& stack)
      : op_(op),
        schema_(op.schema()),
        stack_(stack),
        first_argument_(stack.size() - schema_.arguments().size()) {
    find_device();
  }

  void run() {
    count_call();
    capture_ = is_view(schema_) ? nullptr : Capture::of(device_);
    if (capture_ && waits_) capture_->refuse("a result that the host reads");
    if (!is_view(schema_)) finish_pending_copies();
    if (!capture_) return compute();
    Stack recorded(stack_.begin() + static_cast<std::ptrdiff_t>(first_argument_), stack_.end());
    for (IValue& value : recorded) value = for_replay(value);
    compute();
    capture_->add([op = op_, recorded, results = results_for_replay()] { replay(op, recorded, results); });
  }

  // Without counting.
  void compute() {
    refuse_mixed_devices();
    refuse_as_cuda_does(schema_.name(), c10::ArrayRef<IValue>(stack_).slice(first_argument_));
    twins_.emplace(capture_.get());
    for (size_t i = 0; i < schema_.arguments().size(); ++i) to_cpu(i);
    const MemoryAccess access;
    call_on_cpu();
    twins_->write_back(device_);
    for (size_t i = stack_.size() - schema_.returns().size(); i < stack_.size(); ++i) {
      stack_[i] = with_tensors_replaced(
          stack_[i], [this](const at::Tensor& result) { return twins_->to_fake(result, device_); });
    }
  }

 private:
  IValue& argument(size_t i) { return stack_[first_argument_ + i]; }

  IValue for_replay(const IValue& value) {
    return with_tensors_replaced(
        value, [this](const at::Tensor& tensor) { return at::Tensor(capture_->for_replay(tensor)); });
  }

  std::vector<at::Tensor> results_for_replay() {
    std::vector<at::Tensor> results;
    for (size_t i = stack_.size() - schema_.returns().size(); i < stack_.size(); ++i)
      for_each_tensor(stack_[i], [&](const at::Tensor& result) {
        results.push_back(at::Tensor(capture_->for_replay(result)));
      });
    return results;
  }

  // The results go where the captured ones lie.
  static void replay(const OperatorHandle& op, const Stack& recorded,
                     const std::vector<at::Tensor>& results) {
    const at::DisableRecordFunctionGuard no_operators;  // a graph calls none on the host
    Stack stack = recorded;
    TwinCall(op, stack).compute();
    auto to = results.begin();
    const MemoryAccess access;
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    for (const IValue& value : stack)
      for_each_tensor(value, [&](const at::Tensor& result) {
        if (result.defined() && !result.storage().is_alias_of(to->storage()))
          at::Tensor(cpu_twin(*to)).copy_(at::Tensor(cpu_twin(result)));
        ++to;
      });
  }

  void count_call() {
    const bool reads_item = schema_.name() == "aten::_local_scalar_dense";
    const bool is_dependent =
        is_data_dependent(schema_.name(), c10::ArrayRef<IValue>(stack_).slice(first_argument_));
    waits_ = reads_item || is_dependent;
    if (Capture::of(device_)) return;
    const std::lock_guard lock(ledger().mutex);
    ++ledger().operator_calls[schema_.name()];
    ledger().counts.launches += is_view(schema_) ? 0 : 1;
    ledger().counts.item_reads += reads_item ? 1 : 0;
    ledger().counts.data_dependent_ops += is_dependent ? 1 : 0;
  }

  // The device of the first fake tensor, else the device asked for.
  void find_device() {
    std::optional<c10::DeviceIndex> found;
    for (size_t i = 0; i < schema_.arguments().size(); ++i) {
      for_each_tensor(argument(i), [&](const at::Tensor& tensor) {
        if (is_fake(tensor) && !found) found = tensor.device().index();
      });
      if (argument(i).isDevice() && argument(i).toDevice().has_index() && !found) {
        found = argument(i).toDevice().index();
      }
    }
    device_ = found.value_or(current_device());
  }

  // As CUDA: a CPU tensor without dimensions is a number and may be read; indices may be on the CPU and are
  // copied.
  void refuse_mixed_devices() {
    for (size_t i = 0; i < schema_.arguments().size(); ++i) {
      const c10::Argument& parameter = schema_.arguments()[i];
      const bool is_written = parameter.alias_info() != nullptr && parameter.alias_info()->isWrite();
      for_each_tensor(argument(i), [&](const at::Tensor& tensor) {
        if (!tensor.defined() || tensor.device() == device(device_)) return;
        if (tensor.is_cpu() && argument(i).isOptionalTensorList()) {
          if (capture_) capture_->refuse("an index that is copied to the device");
          count(&Counts::host_to_device_copies);
          count(&Counts::host_to_device_bytes, static_cast<int64_t>(tensor.nbytes()));
          count(&Counts::blocking_host_to_device_copies);
          return;
        }
        if (tensor.is_cpu() && tensor.dim() == 0 && argument(i).isTensor() && !is_written) return;
        TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ",
                    device(device_), " and ", tensor.device(), "! (when checking argument for argument ",
                    parameter.name(), " in method ", schema_.name(), ")");
      });
    }
  }

  void finish_pending_copies() {
    if (waits_) finish_current_stream(device_);
    if (!late_copies()) return;
    for (size_t i = 0; i < schema_.arguments().size(); ++i) {
      for_each_tensor(argument(i), [](const at::Tensor& tensor) {
        if (is_fake(tensor)) finish_copies_of(tensor.storage());
      });
    }
  }

  void to_cpu(size_t i) {
    IValue& value = argument(i);
    if (value.isDevice()) {
      value = c10::Device(c10::DeviceType::CPU);
    } else if (value.isGenerator()) {
      value = capture_ ? capture_->generator() : cpu_generator_of(value.toGenerator());
    } else if (value.isNone() && is_generator(schema_.arguments()[i])) {
      value = capture_ ? capture_->generator() : cpu_generator_of(default_generator(device_));
    } else {
      value =
          with_tensors_replaced(value, [this](const at::Tensor& tensor) { return twins_->twin_of(tensor); });
    }
  }

  void call_on_cpu() {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack_);
  }

  const OperatorHandle& op_;
  const c10::FunctionSchema& schema_;
  Stack& stack_;
  const size_t first_argument_;
  c10::DeviceIndex device_ = 0;
  bool waits_ = false;
  std::shared_ptr<Capture> capture_;
  std::optional<Twins> twins_;
};

void run_on_cpu(const OperatorHandle& op, Stack* stack) { TwinCall(op, *stack).run(); }

}  // namespace

at::TensorBase cpu_twin(const at::TensorBase& fake, Capture* capture) {
  return Twins(capture).twin_of(at::Tensor(fake));
}

void register_fallback(torch::Library& all_operators, torch::Library& aten) {
  const auto fallback = [] { return torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>(); };
  all_operators.fallback(fallback());
  // These have a composite form, which is taken before a fallback: it throws, rounds otherwise than the CPU
  // does, warns of a result that it resizes (the losses), or (index) copies indices and searches masks
  // itself, so that they would be counted twice.
  for (const char* name : {"convolution", "convolution_overrideable", "convolution_backward",
                           "convolution_backward_overrideable", "native_layer_norm", "native_group_norm",
                           "mse_loss", "smooth_l1_loss", "index.Tensor"}) {
    aten.impl(name, fallback());
  }
}

}  // namespace kindling::fake
