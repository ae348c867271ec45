#include <ATen/DLConvertor.h>

#include <array>
#include <memory>
#include <string>

#include "bindings/trainer_handle.h"
#include "kindling/device/device.h"

namespace kindling::bindings {
namespace {

constexpr std::uint32_t kMajorVersion = 1;
constexpr std::uint64_t kReadOnly = 1;  // DLPACK_FLAG_BITMASK_READ_ONLY

[[noreturn]] void refuse_capsule(const std::string& found, const std::string& wanted) {
  throw DataError({.place = "kindling_tensor_from_dlpack", .found = found, .wanted = wanted});
}

// Checked here, because LibTorch takes what it cannot represent for something else.
void check(const DLTensor& tensor) {
  if (tensor.ndim < 0 || tensor.ndim > KINDLING_MAX_RANK)
    refuse_capsule("the capsule has rank " + std::to_string(tensor.ndim),
                   "a rank from 0 to " + std::to_string(KINDLING_MAX_RANK));
  if (tensor.ndim > 0 && tensor.shape == nullptr)
    refuse_capsule("the capsule's shape is a null pointer", "one number per dimension");
  std::int64_t numel = 1, extent = 0;
  for (std::int32_t i = 0; i < tensor.ndim; ++i) {
    if (tensor.shape[i] < 0)
      refuse_capsule("dimension " + std::to_string(i) + " has size " + std::to_string(tensor.shape[i]),
                     "sizes of at least 0");
    if (__builtin_mul_overflow(numel, tensor.shape[i], &numel))
      refuse_capsule("the capsule's shape has more elements than a number of 64 bits counts",
                     "fewer than 2^63");
    if (tensor.strides != nullptr && tensor.strides[i] < 0 && tensor.shape[i] > 1)
      refuse_capsule("dimension " + std::to_string(i) + " has a negative stride", "strides of at least 0");
    std::int64_t length = 0;
    const std::int64_t stride = tensor.strides != nullptr && tensor.shape[i] > 1 ? tensor.strides[i] : 0;
    if (__builtin_mul_overflow(stride, tensor.shape[i] * std::int64_t{8}, &length) ||
        __builtin_add_overflow(extent, length, &extent))
      refuse_capsule("the strides reach beyond the memory", "strides in elements");
  }
  if (tensor.data == nullptr && numel > 0)
    refuse_capsule("the capsule's data is a null pointer", "the address of the elements");
  const DLDataType& type = tensor.dtype;
  const bool is_known =
      type.lanes == 1 &&
      ((type.code == kDLFloat && (type.bits == 16 || type.bits == 32 || type.bits == 64)) ||
       (type.code == kDLInt && (type.bits == 8 || type.bits == 16 || type.bits == 32 || type.bits == 64)) ||
       (type.code == kDLUInt && type.bits == 8) || (type.code == kDLBool && type.bits == 8) ||
       (type.code == kDLBfloat && type.bits == 16));
  if (!is_known)
    refuse_capsule("the dtype has code " + std::to_string(type.code) + ", " + std::to_string(type.bits) +
                       " bits, " + std::to_string(type.lanes) + " lanes",
                   "a dtype of kindling_c.h: floats, integers, uint8 or bool, with 1 lane");
  if (tensor.device.device_type != kDLCPU && tensor.device.device_type != kDLCUDA)
    refuse_capsule("the capsule is on a device of type " + std::to_string(tensor.device.device_type),
                   "memory of the host (1) or of CUDA (2)");
  if (tensor.device.device_type == kDLCUDA &&
      (tensor.device.device_id < 0 || tensor.device.device_id >= num_gpus()))
    refuse_capsule("the capsule is on GPU " + std::to_string(tensor.device.device_id) + " of " +
                       std::to_string(num_gpus()),
                   "a GPU of this process");
}

// LibTorch takes no offset: adds it to the address until the capsule is the tensor's.
class WithoutOffset {
 public:
  explicit WithoutOffset(DLTensor& tensor)
      : tensor_(&tensor), data_(tensor.data), offset_(tensor.byte_offset) {
    tensor.data = static_cast<char*>(tensor.data) + offset_;
    tensor.byte_offset = 0;
  }
  ~WithoutOffset() {
    if (tensor_ == nullptr) return;
    tensor_->data = data_;
    tensor_->byte_offset = offset_;
  }
  WithoutOffset(const WithoutOffset&) = delete;
  WithoutOffset& operator=(const WithoutOffset&) = delete;
  void keep() noexcept { tensor_ = nullptr; }

 private:
  DLTensor* tensor_;
  void* data_;
  std::uint64_t offset_;
};

at::Tensor shared_with(void* managed, bool is_versioned) {
  if (!is_versioned) {
    auto* const capsule = static_cast<DLManagedTensor*>(managed);
    check(capsule->dl_tensor);
    WithoutOffset whole(capsule->dl_tensor);
    at::Tensor shared = at::fromDLPack(capsule);
    whole.keep();
    return shared;
  }
  auto* const capsule = static_cast<DLManagedTensorVersioned*>(managed);
  if (capsule->version.major != kMajorVersion)
    refuse_capsule("the capsule has version " + std::to_string(capsule->version.major) + "." +
                       std::to_string(capsule->version.minor),
                   "major version 1");
  check(capsule->dl_tensor);
  const bool is_read_only = (capsule->flags & kReadOnly) != 0;
  WithoutOffset whole(capsule->dl_tensor);
  const at::Tensor shared = at::fromDLPackVersioned(capsule);
  whole.keep();
  return is_read_only ? shared.clone() : shared;
}

}  // namespace
}  // namespace kindling::bindings

using namespace kindling;            // NOLINT: the functions of C are outside of namespaces
using namespace kindling::bindings;  // NOLINT

kindling_status kindling_tensor_from_array(const kindling_array* array, kindling_tensor* tensor) {
  return call(__func__, [&, here = __func__] {
    require_pointer(array, here, "array");
    require_pointer(tensor, here, "tensor");
    const at::Tensor view = view_of(*array, /*is_output=*/false, here, {"array"});
    *tensor = tensors().add(std::make_shared<at::Tensor>(view.clone(at::MemoryFormat::Contiguous)));
  });
}

kindling_status kindling_tensor_from_dlpack(void* managed, int32_t is_versioned, kindling_tensor* tensor) {
  return call(__func__, [&, here = __func__] {
    require_pointer(managed, here, "managed");
    require_pointer(tensor, here, "tensor");
    *tensor = tensors().add(std::make_shared<at::Tensor>(shared_with(managed, is_versioned != 0)));
  });
}

kindling_status kindling_tensor_array(kindling_tensor tensor, kindling_array* array) {
  return call(__func__, [&, here = __func__] {
    require_pointer(array, here, "array");
    const std::shared_ptr<at::Tensor> object = tensors().get(tensor, here);
    if (object->dim() > KINDLING_MAX_RANK || dtype_of(object->scalar_type()) == 0)
      throw DataError({.place = here,
                       .found = "the tensor has shape " + shape_of(object->sizes()) + " and dtype " +
                                std::string(at::toString(object->scalar_type())),
                       .wanted = "a rank of at most " + std::to_string(KINDLING_MAX_RANK) +
                                 " and a dtype of kindling_c.h"});
    *array = {.data = object->mutable_data_ptr(),
              .shape = object->sizes().data(),
              .strides = object->strides().data(),
              .rank = static_cast<int32_t>(object->dim()),
              .dtype = dtype_of(object->scalar_type()),
              .device = object->is_cpu() ? KINDLING_CPU : KINDLING_CUDA,
              .device_index = object->is_cpu() ? 0 : object->device().index()};
  });
}

kindling_status kindling_tensor_to_dlpack(kindling_tensor tensor, int32_t is_versioned, void** managed) {
  return call(__func__, [&, here = __func__] {
    require_pointer(managed, here, "managed");
    const std::shared_ptr<at::Tensor> object = tensors().get(tensor, here);
    if (is_versioned != 0)
      *managed = at::toDLPackVersioned(*object);
    else
      *managed = at::toDLPack(*object);
  });
}

kindling_status kindling_tensor_free(kindling_tensor tensor) {
  return call(__func__, [&, here = __func__] {
    if (tensor != nullptr) tensors().remove(tensor, here);
  });
}
