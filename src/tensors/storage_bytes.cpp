#include "tensors/storage_bytes.h"

#include <ATen/ops/empty.h>

namespace kindling {

at::Tensor bytes_of(const c10::Storage& storage) {
  at::Tensor bytes = at::empty({0}, at::dtype(at::kByte).device(storage.device()));
  return bytes.set_(storage, 0, {static_cast<std::int64_t>(storage.nbytes())}, {1});
}

at::Tensor borrowed_bytes(c10::StorageImpl& storage) {
  return bytes_of(c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), storage.nbytes(),
      at::DataPtr(storage.mutable_data(), storage.device()), /*allocator=*/nullptr, /*resizable=*/false)));
}

}  // namespace kindling
