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
// updates the parameters that it owns and keeps only their state; then it broadcasts their new values.
class OptimizerShard {
 public:
  // `update` steps the optimizer, which then sees only the gradients of this rank's parameters. Throws
  // ConfigError for a rule that is not per parameter. Collective.
  void step(ProcessGroup& group, Optimizer& optimizer, const std::function<void()>& update);

 private:
  // Values broadcast from one rank: a large parameter in place, small ones packed.
  struct Transfer {
    std::int64_t owner;
    std::vector<at::Tensor> parameters;
    at::Tensor packed;  // undefined for a large parameter
  };
  void plan(ProcessGroup& group, Optimizer& optimizer);
  void broadcast_updates(ProcessGroup& group) const;

  std::vector<at::Tensor> parameters_;
  std::vector<std::int64_t> owners_;  // by parameter
  std::vector<Transfer> transfers_;
};

}  // namespace kindling
