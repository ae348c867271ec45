#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kindling/distributed/process_group.h"
#include "kindling/optim/optimizer.h"

namespace kindling {

// The state of one optimizer, sharded over ranks (ZeRO, first stage: Rajbhandari et al., 2020). Each rank
// updates the parameters that it owns and keeps their state alone; then it broadcasts their new values.
class OptimizerShard {
 public:
  // `update` steps the optimizer, which sees the gradients of this rank's parameters alone meanwhile. Throws
  // ConfigError for a rule that is not per parameter. Collective.
  void step(ProcessGroup& group, Optimizer& optimizer, const std::function<void()>& update);

 private:
  // Values that come from one rank: those of a large parameter from where they are, of small ones packed.
  struct Transfer {
    std::int64_t owner;
    std::vector<at::Tensor> parameters;
    at::Tensor packed;  // undefined: of a large one
  };
  void plan(ProcessGroup& group, Optimizer& optimizer);
  void broadcast_updates(ProcessGroup& group) const;

  std::vector<at::Tensor> parameters_;
  std::vector<std::int64_t> owners_;  // of the parameters
  std::vector<Transfer> transfers_;
};

}  // namespace kindling
