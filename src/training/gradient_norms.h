#pragma once

#include <map>
#include <string>
#include <vector>

#include "kindling/metrics/epoch_log.h"
#include "kindling/nn/module.h"
#include "kindling/optim/optimizer.h"

namespace kindling {

// The p-norms of gradients (TrainerOptions::track_grad_norm) as values of a log, each under the name of its
// parameter in the model: "grad_norm/net.0.weight". One operator on the device, no wait.
class GradientNorms {
 public:
  explicit GradientNorms(double p) : p_(p) {}  // 0: none

  // Of the parameters of the optimizer that have a gradient. Throws ConfigError for a sparse one.
  void mark(EpochLog& log, Optimizer& optimizer, const Module& model);

 private:
  const std::vector<std::string>& columns_of(const Optimizer& optimizer, const Module& model);

  double p_;
  std::map<const Optimizer*, std::vector<std::string>> columns_{};  // of its parameters()
};

}  // namespace kindling
