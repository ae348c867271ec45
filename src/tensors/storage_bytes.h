#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

namespace kindling {

// Returns all bytes of a storage, uint8. They keep it alive, unless it is borrowed memory, which must outlive
// them.
at::Tensor bytes_of(const c10::Storage& storage);
at::Tensor borrowed_bytes(c10::StorageImpl& storage);

}  // namespace kindling
