#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/metrics/epoch_log.h"
#include "kindling/tensors/state_dict.h"

namespace kindling {

// A fingerprint of all rows that a run has logged so far: of each row its step, batch, learning rate, weight
// and loss, or all its values if it has no loss. Runs with equal digests have had the same losses. Each
// number goes through a bijection of 64-bit numbers, so that a change of a single number always changes the
// digest.
class KINDLING_API LogDigest {
 public:
  // Adds the rows since the last call or end_epoch(). They are on the host.
  void add_rows(const EpochLog& log);
  // The rows that have been added are about to be cleared.
  void end_epoch() { num_rows_ = 0; }
  // Returns the digest as a whole number that a double can hold (53 bits); 0 for a run whose first steps were
  // trained by a version without digests.
  std::int64_t number() const noexcept;

  // Save and load the digest of a run whose log has so many rows. Loading throws CheckpointError.
  void save(StateDict& state) const;
  void load(const StateDict& state, std::int64_t num_rows);

 private:
  // Of a row, the positions of its values that count.
  static std::vector<std::size_t> counted_places(const EpochLog& log, const EpochLog::Segment& segment);
  static std::uint64_t after_row(std::uint64_t digest, const EpochLog& log, const EpochLog::Segment& segment,
                                 std::int64_t row, const std::vector<std::size_t>& places);

  std::optional<std::uint64_t> digest_ = 0;  // empty: unknown
  std::int64_t num_rows_ = 0;                // of the log, that have been added
};

}  // namespace kindling
