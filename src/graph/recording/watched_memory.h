#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "graph/recording/recording.h"

namespace kindling {

// Returns the number of owners of a tensor and of its memory.
inline std::size_t num_uses(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.use_count() + tensor.storage().use_count() : 0;
}

// External memory that captured work reads and that was not known to the recording.
class WatchedMemory {
 public:
  explicit WatchedMemory(const Recording& recording) {
    for (const RecordedStorage& storage : recording.storages)
      if (storage.is_external && !storage.is_known && !storage.is_constant && storage.input < 0)
        if (const auto there = storage.name.lock()) pieces_.push_back({storage.name, there->data()});
  }

  // True if a piece of it was released by all owners, or has moved.
  bool is_lost() const {
    return std::ranges::any_of(pieces_, [](const Piece& piece) {
      const auto storage = piece.storage.lock();
      return !storage || storage->data() != piece.data;
    });
  }

 private:
  struct Piece {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    const void* data;
  };
  std::vector<Piece> pieces_;
};

}  // namespace kindling
