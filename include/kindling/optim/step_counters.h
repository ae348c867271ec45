#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>
#include <vector>

#include "kindling/base/export.h"

namespace kindling {

// Counts the steps of an optimizer's parameters on their device. Parameters that have always been updated
// together share one count, and whatever other scalars depend on the steps alone (NAdam's product): they cost
// one operator instead of one for each parameter.
class KINDLING_API StepCounters {
 public:
  // `scalars` are lists of an optimizer's state (Optimizer::add_state) that start as scalars, the number of
  // steps first. They outlive this.
  explicit StepCounters(std::vector<std::vector<at::Tensor>*> scalars) : scalars_(std::move(scalars)) {}

  // Counts one more step of the parameters at these places, unless `found_inf` is defined and 1. Gives the
  // indices into `active`, those together whose parameters share a counter. Parameters that part from others
  // get copies.
  std::vector<std::vector<std::size_t>> advance(std::span<const std::size_t> active,
                                                const at::Tensor& found_inf = {});

  // After the lists were loaded: equal counters become one again. Reads them on the host.
  void share_equal();

 private:
  struct Counter {
    std::vector<at::Tensor> scalars;
    std::size_t num_parameters = 0;
    std::size_t num_active = 0;  // in the step under way
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
