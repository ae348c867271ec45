#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

namespace kindling {

// All bytes of a storage, uint8. They keep it alive; borrowed ones do not, and are good as long as it is.
at::Tensor bytes_of(const c10::Storage& storage);
at::Tensor borrowed_bytes(c10::StorageImpl& storage);

}  // namespace kindling
