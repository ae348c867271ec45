#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/tensors/state_dict.h"

namespace kindling {

// What counts as equal: |a - b| <= absolute + relative · max(|a|, |b|). The default takes equal values alone.
struct Tolerance {
  double relative = 0, absolute = 0;
};

// How two models, or two saved states, differ.
struct KINDLING_API StateComparison {
  // Tensors of one name whose shape or dtype differ, as "Float [2, 3]".
  struct Misfit {
    std::string name, in_a, in_b;
  };
  // Over the elements: |a - b|, and |a - b| / max(|a|, |b|). Both are 0 for equal elements (also for two NaN)
  // and infinite where only one is NaN.
  struct Difference {
    std::string name;
    double max_absolute, max_relative;
    std::int64_t num_different;  // elements beyond the tolerance of the comparison
  };

  std::vector<std::string> only_in_a, only_in_b;
  std::vector<Misfit> misfits;
  std::vector<Difference> differences;  // all other tensors, in the order of a

  // Same names, shapes and dtypes, and no element further apart than `tolerance`.
  bool is_equal(double tolerance = 0) const;
  // A line of summary, then one for everything that differs, largest difference first.
  std::string text() const;
};

// Compares where the tensors of `a` are, in double or int64; what lies elsewhere is moved there, a tensor at
// a time. The results come to the host in one copy.
KINDLING_API StateComparison compare(const StateDict& a, const StateDict& b, const Tolerance& tolerance = {});
KINDLING_API StateComparison compare(const torch::nn::Module& a, const torch::nn::Module& b,
                                     const Tolerance& tolerance = {});

}  // namespace kindling
