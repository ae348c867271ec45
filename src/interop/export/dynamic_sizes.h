#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "interop/export/size_polynomial.h"
#include "kindling/interop/export_program.h"
#include "kindling/tensors/batch.h"

namespace kindling {

// The combinations of dynamic sizes with which a forward is recorded, and what can be said of a number that
// has been seen with each of them.
class RecordedSizes {
 public:
  using Sizes = std::vector<std::int64_t>;     // one of each dynamic size
  using Values = std::array<std::int64_t, 5>;  // that one dynamic size takes, no two alike
  static constexpr int kMaxExponent = 2;       // of a size
  static constexpr int kMaxDegree = 3;         // of a product of sizes

  // Enough to know every polynomial of these degrees, and some more, which contradict what is none.
  explicit RecordedSizes(const std::vector<Values>& values);

  const std::vector<Sizes>& all() const noexcept { return all_; }

  // The polynomial that the numbers are, in the order of all(); nullopt: they are none of these degrees with
  // whole factors.
  std::optional<SizePolynomial> polynomial_through(const std::vector<std::int64_t>& numbers) const;

 private:
  using Exponents = SizePolynomial::Exponents;
  using Terms = std::map<Exponents, std::int64_t>;
  void add_exponents(Exponents begin, int degree);
  bool divide_differences(Terms& terms) const;
  void multiply_out(Terms& terms) const;
  std::int64_t value(std::size_t size, int number) const {
    return values_[size][static_cast<std::size_t>(number)];
  }

  std::vector<Values> values_;
  std::vector<Exponents> exponents_;  // of all products; the first combinations have these values' numbers
  std::vector<Sizes> all_;
};

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
