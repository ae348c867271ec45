#pragma once

#include <cstddef>
#include <iterator>

#include "kindling/base/export.h"
#include "kindling/tensors/batch.h"

namespace kindling {

class Trainer;

// The batches of an epoch for a custom training loop; see Trainer::train_batches(). The trainer must outlive
// it.
class KINDLING_API TrainBatches {
 public:
  // Iterates over the batches, for range-based for loops.
  class KINDLING_API Iterator {
   public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    explicit Iterator(Trainer& trainer);
    const Batch& operator*() const { return batch_; }
    Iterator& operator++();
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& it, std::default_sentinel_t) { return it.is_at_end_; }

   private:
    Trainer* trainer_;
    Batch batch_;
    bool is_at_end_ = false;
  };

  explicit TrainBatches(Trainer& trainer) : trainer_(&trainer) {}
  Iterator begin() const { return Iterator(*trainer_); }
  std::default_sentinel_t end() const noexcept { return {}; }

 private:
  Trainer* trainer_;
};

}  // namespace kindling
