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

// The combinations of dynamic sizes with which a forward pass is recorded, and the polynomials through
// numbers observed with each of them.
class RecordedSizes {
 public:
  using Sizes = std::vector<std::int64_t>;     // one of each dynamic size
  using Values = std::array<std::int64_t, 5>;  // values of one dynamic size, all different
  static constexpr int kMaxExponent = 2;       // of a size
  static constexpr int kMaxDegree = 3;         // of a product of sizes

  // Enough to determine every polynomial of these degrees, and some more to detect other functions.
  explicit RecordedSizes(const std::vector<Values>& values);

  const std::vector<Sizes>& all() const noexcept { return all_; }

  // Returns the polynomial through the numbers, in the order of all(); nullopt if there is none of these
  // degrees with integer coefficients.
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
  std::vector<Exponents>
      exponents_;  // of all products; the first combinations use the values of these indices
  std::vector<Sizes> all_;
};

// The dynamic sizes of an example: the batch size, unless it is fixed, and the named ones. Sizes are counted
// in units of their multiple_of: 3 is a size of 24 for a multiple of 8.
class DynamicSizes {
 public:
  using Sizes = RecordedSizes::Sizes;
  using Range = std::pair<std::int64_t, std::optional<std::int64_t>>;

  // Throws ConfigError for sizes that the example does not have, that contradict each other, or that have too
  // few values.
  DynamicSizes(const Batch& example, const ExportOptions& options);

  std::size_t count() const noexcept { return sizes_.size(); }
  bool has_batch() const noexcept { return has_batch_; }
  std::map<std::string, std::string> names() const;  // by their symbols
  std::int64_t multiple(std::size_t number) const { return sizes_[number].multiple_of; }
  Range range(std::size_t number) const;  // from 1 on by default

  const RecordedSizes& recorded() const noexcept { return *recorded_; }
  // Returns further sizes to check: some that have not been recorded, and the bounds.
  std::vector<Sizes> unrecorded() const;

  // Returns the example with these sizes, repeated from sample `first` on. All tensors are copies.
  Batch resized(const Batch& example, const Sizes& sizes, std::int64_t first) const;
  // "a batch of 5, sequence of 24"
  std::string text(const Sizes& sizes) const;
  // Throws Error for a forward pass that fails with these sizes.
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
  std::vector<DynamicSize::Place> sample_places_{};  // dimensions 0 with one sample per row
  std::vector<Size> sizes_{};
  std::optional<RecordedSizes> recorded_{};
};

}  // namespace kindling
