#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kindling/programs/export_program.h"
#include "kindling/tensors/batch.h"
#include "programs/recorded_sizes.h"

namespace kindling {

// The sizes of an example that are dynamic: the batch's, if it is, and those that have names. Each is counted
// in the multiples that it has to be, so that 3 is a size of 24 where it is a multiple of 8.
class DynamicSizes {
 public:
  using Sizes = RecordedSizes::Sizes;
  using Range = std::pair<std::int64_t, std::optional<std::int64_t>>;

  // Throws ConfigError for sizes that the example does not have, that contradict each other, or that have too
  // few values to show anything.
  DynamicSizes(const Batch& example, const ExportOptions& options);

  std::size_t count() const noexcept { return sizes_.size(); }
  bool has_batch() const noexcept { return has_batch_; }
  std::map<std::string, std::string> names() const;  // by their symbols
  std::int64_t multiple(std::size_t number) const { return sizes_[number].multiple_of; }
  Range range(std::size_t number) const;  // from 1 on, where nothing else is said

  const RecordedSizes& recorded() const noexcept { return *recorded_; }
  // What is tried besides: sizes that have not been recorded, and the bounds.
  std::vector<Sizes> unrecorded() const;

  // The example with these sizes, from sample number `first` on, again and again. All tensors are copies.
  Batch resized(const Batch& example, const Sizes& sizes, std::int64_t first) const;
  // "a batch of 5, sequence of 24"
  std::string text(const Sizes& sizes) const;
  // Throws Error for a forward that does not run with these.
  [[noreturn]] void refuse_forward(const Sizes& sizes, const std::string& reason) const;

 private:
  struct Size : DynamicSize {
    RecordedSizes::Values recorded{};
    std::int64_t unrecorded = 0;
  };
  void require_possible(const Batch& example, const DynamicSize& size) const;
  void add(const DynamicSize& named);

  bool has_batch_;
  std::int64_t samples_;
  std::vector<DynamicSize::Place> sample_places_{};  // dimensions 0 that have a sample in each row
  std::vector<Size> sizes_{};
  std::optional<RecordedSizes> recorded_{};
};

}  // namespace kindling
