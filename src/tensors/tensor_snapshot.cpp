#include "tensors/tensor_snapshot.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <cstring>
#include <unordered_set>

namespace kindling {

TensorSnapshot::TensorSnapshot(const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  std::unordered_set<const c10::StorageImpl*> known;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || !known.insert(tensor.storage().unsafeGetStorageImpl()).second) continue;
    if (!tensor.is_cpu()) {
      const at::Tensor bytes = bytes_of(tensor.storage());
      on_device_.emplace_back(bytes, bytes.clone());
      continue;
    }
    const auto* bytes = static_cast<const char*>(tensor.storage().data());
    on_host_.emplace_back(tensor.storage(), std::vector<char>(bytes, bytes + tensor.storage().nbytes()));
  }
}

void TensorSnapshot::restore() const noexcept {
  for (const auto& [storage, bytes] : on_host_)
    if (!bytes.empty() && std::memcmp(storage.data(), bytes.data(), bytes.size()) != 0)
      std::memcpy(storage.mutable_data(), bytes.data(), bytes.size());
  const at::NoGradGuard no_grad;
  try {
    for (const auto& [bytes, copy] : on_device_) bytes.copy_(copy);
  } catch (const c10::Error&) {
    // The device is broken, and the next call on it reports that, too.
  }
}

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
