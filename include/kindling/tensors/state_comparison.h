#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/tensors/state_dict.h"

namespace kindling {

// The criterion of equality: |a - b| <= absolute + relative · max(|a|, |b|). By default, values must be
// equal.
struct Tolerance {
  double relative = 0, absolute = 0;
};

// The differences between two models, or two saved states.
struct KINDLING_API StateComparison {
  // Tensors of the same name with different shapes or dtypes, as "Float [2, 3]".
  struct Misfit {
    std::string name, in_a, in_b;
  };
  // Over the elements: |a - b|, and |a - b| / max(|a|, |b|). Both are 0 for equal elements (also for two NaN)
  // and infinite if only one is NaN.
  struct Difference {
    std::string name;
    double max_absolute, max_relative;
    std::int64_t num_different;  // elements beyond the tolerance of the comparison
  };

  std::vector<std::string> only_in_a, only_in_b;
  std::vector<Misfit> misfits;
  std::vector<Difference> differences;  // all other tensors, in the order of a

  // True if names, shapes and dtypes are the same, and no elements differ by more than `tolerance`.
  bool is_equal(double tolerance = 0) const;
  // Returns a summary line, then a line for each difference, largest first.
  std::string text() const;
};

// Compares on the device of the tensors of `a`, in double or int64; tensors of `b` on other devices are moved
// there, one at a time. The results are copied to the host at once.
KINDLING_API StateComparison compare(const StateDict& a, const StateDict& b, const Tolerance& tolerance = {});
KINDLING_API StateComparison compare(const torch::nn::Module& a, const torch::nn::Module& b,
                                     const Tolerance& tolerance = {});

}  // namespace kindling
