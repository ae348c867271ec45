#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kindling/tensors/state_dict.h"
#include "kindling/training/rollback.h"

namespace kindling {

// The batches that a run passes over, since it went back because of them: those of one step each.
class PassedBatches {
 public:
  void add(const BatchRange& range) { ranges_.push_back(range); }
  std::size_t num_steps() const noexcept { return ranges_.size(); }
  // Returns how many batches a run passes over at this position; 0: it trains the batch.
  std::int64_t count_at(std::int64_t epoch, std::int64_t batch) const;
  std::int64_t count_in(std::int64_t epoch) const;

  void save(StateDict& state) const;
  // Throws CheckpointError.
  static PassedBatches load(const StateDict& state);

 private:
  std::vector<BatchRange> ranges_{};  // in the order in which they were met
};

}  // namespace kindling
