#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "kindling/distributed/process_group.h"
#include "kindling/optim/optimizer.h"

namespace kindling {

// The process that each of an optimizer's parameters belongs to: the largest first, each to the process that
// has least by then. It hangs on their sizes alone.
std::vector<std::int64_t> owners_of(std::span<const at::Tensor> parameters, std::int64_t num_processes);

// The states of optimizers, shared out among processes (ZeRO, first stage: Rajbhandari et al., 2020). Each
// process makes the update of the parameters that belong to it and so has their state alone; then their new
// values come from there to all others.
class OptimizerShards {
 public:
  explicit OptimizerShards(ProcessGroup& group) : group_(group) {}  // which outlives it

  // `update` steps the optimizer, which sees the gradients of this process's parameters alone meanwhile.
  // Throws ConfigError for a rule that is not per parameter.
  void step(Optimizer& optimizer, const std::function<void()>& update);

 private:
  // Values that come from one process: those of a large parameter from where they lie, of small ones packed.
  struct Transfer {
    std::int64_t owner;
    std::vector<at::Tensor> parameters;
    at::Tensor packed;  // undefined: of a large one
  };
  struct Plan {
    std::vector<at::Tensor> parameters;
    std::vector<std::int64_t> owners;  // of the parameters
    std::vector<Transfer> transfers;
  };
  Plan& plan_of(Optimizer& optimizer);
  void bring_values(const Plan& plan);

  ProcessGroup& group_;
  std::map<const Optimizer*, Plan> plans_;
};

}  // namespace kindling
