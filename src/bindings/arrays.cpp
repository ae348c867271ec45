#include "bindings/arrays.h"

#include <ATen/core/DimVector.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "bindings/call.h"
#include "kindling/device/device.h"

namespace kindling::bindings {
namespace {

constexpr std::array<std::pair<int32_t, at::ScalarType>, 10> kTypes{{
    {KINDLING_FLOAT32, at::kFloat},
    {KINDLING_FLOAT64, at::kDouble},
    {KINDLING_FLOAT16, at::kHalf},
    {KINDLING_BFLOAT16, at::kBFloat16},
    {KINDLING_INT8, at::kChar},
    {KINDLING_INT16, at::kShort},
    {KINDLING_INT32, at::kInt},
    {KINDLING_INT64, at::kLong},
    {KINDLING_UINT8, at::kByte},
    {KINDLING_BOOL, at::kBool},
}};

// One array of a call, checked.
class CheckedArray {
 public:
  CheckedArray(const kindling_array& array, const char* place, const ArrayName& name)
      : array_(array), place_(place), name_(name) {
    check_sizes();
    type_ = type();
    device_ = device();
    strides_ = strides();
    check_memory();
  }

  at::Tensor view(bool is_output) const {
    const bool is_reversed = std::ranges::any_of(strides_, [](std::int64_t stride) { return stride < 0; });
    if (is_output && is_reversed)
      refuse("it has a negative stride", "an array to write into with strides of at least 0");
    for (std::size_t i = 0; is_output && i < sizes_.size(); ++i)
      if (strides_[i] == 0 && sizes_[i] > 1)
        refuse("stride 0 makes elements of dimension " + std::to_string(i) + " the same",
               "an array to write into whose elements differ");
    if (numel_ == 0) return at::empty(sizes_, at::TensorOptions(type_).device(device_));
    return is_reversed ? reversed() : blob(array_.data, strides_);
  }

 private:
  [[noreturn]] void refuse(const std::string& found, const std::string& wanted) const {
    refuse_use(place_, name_.text() + ": " + found, wanted);
  }

  void check_sizes() {
    if (array_.rank < 0 || array_.rank > KINDLING_MAX_RANK)
      refuse("its rank is " + std::to_string(array_.rank),
             "a rank from 0 to " + std::to_string(KINDLING_MAX_RANK));
    if (array_.rank == 0) return;
    if (array_.shape == nullptr) refuse("its shape is a null pointer", "one number per dimension");
    sizes_.assign(array_.shape, array_.shape + array_.rank);
    for (const std::int64_t size : sizes_) {
      if (size < 0) refuse("its shape is " + shape_of(sizes_), "sizes of at least 0");
      if (size > 0 && __builtin_mul_overflow(numel_, size, &numel_))
        refuse("its shape is " + shape_of(sizes_), "fewer than 2^63 elements");
    }
    if (std::ranges::find(sizes_, 0) != sizes_.end()) numel_ = 0;
  }

  at::ScalarType type() const {
    for (const auto& [number, type] : kTypes)
      if (number == array_.dtype) return type;
    refuse("its dtype is " + std::to_string(array_.dtype), "KINDLING_FLOAT32 or another of kindling_c.h");
  }

  at::Device device() const {
    if (array_.device == KINDLING_CPU) return at::kCPU;
    if (array_.device != KINDLING_CUDA)
      refuse("its device is " + std::to_string(array_.device), "KINDLING_CPU or KINDLING_CUDA");
    if (array_.device_index < 0 || array_.device_index >= num_gpus())
      throw DeviceError({.place = place_,
                         .found = name_.text() + ": it is on GPU " + std::to_string(array_.device_index) +
                                  " of " + std::to_string(num_gpus()) + " (" + gpu_unavailable_reason() + ")",
                         .wanted = "a GPU of this process, or KINDLING_CPU"});
    return gpu(array_.device_index);
  }

  at::DimVector strides() const {
    if (array_.strides != nullptr) return at::DimVector(array_.strides, array_.strides + array_.rank);
    at::DimVector strides(sizes_.size());
    std::int64_t stride = 1;
    for (std::size_t i = sizes_.size(); i-- > 0;) {
      strides[i] = stride;
      stride *= std::max<std::int64_t>(sizes_[i], 1);
    }
    return strides;
  }

  // The elements must be where addresses can be, and where their type may be read.
  void check_memory() const {
    if (numel_ == 0) return;
    if (array_.data == nullptr)
      refuse("its data is a null pointer, and its shape is " + shape_of(sizes_),
             "the address of the elements");
    const auto bytes = static_cast<std::int64_t>(at::elementSize(type_));
    const std::int64_t alignment = std::min<std::int64_t>(bytes, static_cast<std::int64_t>(sizeof(void*)));
    if (reinterpret_cast<std::uintptr_t>(array_.data) % static_cast<std::uintptr_t>(alignment) != 0)
      refuse("its address is not a multiple of " + std::to_string(alignment), "elements in aligned memory");
    std::int64_t extent = bytes;
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
      std::int64_t length = 0;
      const bool is_too_long = __builtin_mul_overflow(strides_[i], (sizes_[i] - 1) * bytes, &length) ||
                               length == INT64_MIN ||
                               __builtin_add_overflow(extent, length < 0 ? -length : length, &extent);
      if (is_too_long) refuse("its strides reach beyond the memory", "strides in elements");
    }
  }

  at::Tensor blob(void* data, at::IntArrayRef strides) const {
    return at::from_blob(
        data, sizes_, strides, [](void*) {}, at::TensorOptions(type_).device(device_), device_);
  }

  // LibTorch has no negative strides: from the lowest address, with the dimensions turned round by a copy.
  at::Tensor reversed() const {
    auto* lowest = static_cast<char*>(array_.data);
    at::DimVector strides = strides_, turned;
    for (std::size_t i = 0; i < strides.size(); ++i) {
      if (strides[i] >= 0) continue;
      lowest += strides[i] * (sizes_[i] - 1) * static_cast<std::int64_t>(at::elementSize(type_));
      strides[i] = -strides[i];
      turned.push_back(static_cast<std::int64_t>(i));
    }
    ++array_counts().copied_for_strides;
    return blob(lowest, strides).flip(turned);
  }

  const kindling_array& array_;
  const char* const place_;
  const ArrayName& name_;
  at::DimVector sizes_;
  std::int64_t numel_ = 1;
  at::ScalarType type_{};
  at::Device device_ = at::kCPU;
  at::DimVector strides_;
};

at::ScalarType type_for(const at::Tensor& tensor, const ArrayUse& use) {
  if (tensor.is_floating_point() || use.converts_integers) return use.floats;
  return use.is_target ? at::kLong : tensor.scalar_type();
}

}  // namespace

at::Tensor view_of(const kindling_array& array, bool is_output, const char* place, const ArrayName& name) {
  return CheckedArray(array, place, name).view(is_output);
}

std::string ArrayName::text() const {
  return index ? std::string(argument) + "[" + std::to_string(*index) + "]" : argument;
}

std::vector<at::Tensor> tensors_of(const kindling_array* arrays, std::size_t count, const ArrayUse& use,
                                   const char* place, const char* argument) {
  std::vector<at::Tensor> tensors;
  if (count == 0) return tensors;
  constexpr std::size_t kMost = 256;
  if (count > kMost) refuse_use(place, std::to_string(count) + " " + argument, "at most 256 arrays");
  require_pointer(arrays, place, argument);
  tensors.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    kindling_array_counts& counts = array_counts();
    const std::int64_t copies = counts.copied_for_strides;
    at::Tensor tensor = view_of(arrays[i], /*is_output=*/false, place, {argument, i});
    if (const at::ScalarType type = type_for(tensor, use); type != tensor.scalar_type()) {
      tensor = tensor.to(type);
      ++counts.copied_for_dtype;
    } else if (copies == counts.copied_for_strides) {
      ++counts.borrowed;
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

int32_t dtype_of(at::ScalarType type) noexcept {
  for (const auto& [number, known] : kTypes)
    if (known == type) return number;
  return 0;
}

std::string shape_of(at::IntArrayRef sizes) {
  std::string text = "[";
  for (std::size_t i = 0; i < sizes.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(sizes[i]);
  return text + "]";
}

kindling_array_counts& array_counts() noexcept {
  thread_local kindling_array_counts counts{};
  return counts;
}

}  // namespace kindling::bindings
