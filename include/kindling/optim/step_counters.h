#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>
#include <vector>

#include "kindling/base/export.h"

namespace kindling {

// Counts the steps of an optimizer's parameters on their device. Parameters that have always been updated
// together share one count and all other scalars that depend on the steps only (NAdam's product), which needs
// one operator instead of one per parameter.
class KINDLING_API StepCounters {
 public:
  // `scalars` are lists of an optimizer's state (Optimizer::add_state) that start as scalars, the number of
  // steps first. They must outlive this object.
  explicit StepCounters(std::vector<std::vector<at::Tensor>*> scalars) : scalars_(std::move(scalars)) {}

  // Counts one more step of the parameters at these indices, unless `found_inf` is defined and 1. Returns
  // indices into `active`, grouped by shared counter. Parameters that separate from others get copies.
  std::vector<std::vector<std::size_t>> advance(std::span<const std::size_t> active,
                                                const at::Tensor& found_inf = {});

  // Called after the lists were loaded: merges equal counters. Reads them on the host.
  void share_equal();

 private:
  struct Counter {
    std::vector<at::Tensor> scalars;
    std::size_t num_parameters = 0;
    std::size_t num_active = 0;  // in the current step
  };
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  void join(std::span<const std::size_t> active);
  void part(std::size_t counter, std::span<const std::size_t> active);
  void assign(std::size_t parameter, std::size_t counter);

  std::vector<std::vector<at::Tensor>*> scalars_;
  std::vector<Counter> counters_;
  std::vector<std::size_t> counter_of_;  // of each parameter; kNone until it has been updated
};

}  // namespace kindling
