#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include <utility>
#include <vector>

namespace kindling {

// Copies the values of tensors, and restores them when it is destroyed. It works on memory: all tensors that
// share it get their values back, and no tensor's version changes, so pending backward graphs stay valid.
// Host memory is written only where its bytes have changed; the host does not wait for a device. Undefined
// tensors are skipped.
class TensorSnapshot {
 public:
  TensorSnapshot() = default;
  explicit TensorSnapshot(const std::vector<at::Tensor>& tensors);
  ~TensorSnapshot() { restore(); }
  TensorSnapshot(const TensorSnapshot&) = delete;
  TensorSnapshot& operator=(const TensorSnapshot&) = delete;

  // Restores the values now, and again later.
  void restore() const noexcept;

 private:
  std::vector<std::pair<c10::Storage, std::vector<char>>> on_host_;
  std::vector<std::pair<at::Tensor, at::Tensor>> on_device_;  // memory, and a copy of it
};

// Returns all bytes of a storage, uint8. They keep it alive, unless it is borrowed memory, which must outlive
// them.
at::Tensor bytes_of(const c10::Storage& storage);
at::Tensor borrowed_bytes(c10::StorageImpl& storage);

}  // namespace kindling
