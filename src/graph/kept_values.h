#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <cstring>
#include <utility>
#include <vector>

namespace kindling {

// Gives the memory of tensors back the bytes that it has found there; what nobody has changed is not written.
class KeptValues {
 public:
  explicit KeptValues(const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& tensor : tensors) {
      const auto* bytes = static_cast<const char*>(tensor.storage().data());
      kept_.emplace_back(tensor.storage(), std::vector<char>(bytes, bytes + tensor.storage().nbytes()));
    }
  }
  ~KeptValues() {
    for (const auto& [storage, bytes] : kept_)
      if (!bytes.empty() && std::memcmp(storage.data(), bytes.data(), bytes.size()) != 0)
        std::memcpy(storage.mutable_data(), bytes.data(), bytes.size());
  }
  KeptValues(const KeptValues&) = delete;
  KeptValues& operator=(const KeptValues&) = delete;

 private:
  std::vector<std::pair<c10::Storage, std::vector<char>>> kept_;
};

}  // namespace kindling
