#pragma once

#include <kindling/base/log.h>
#include <kindling/data/digits.h>
#include <kindling/models/mlp.h>
#include <kindling/training/trainer.h>
#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

namespace kindling {

struct ShortFit {
  std::vector<at::Tensor> weights;
  std::string log;  // what was logged, a line each
};

// Trains a small network for 12 steps, always from the same weights. Uses public headers only, as a host
// program does.
inline ShortFit short_fit(const std::string& step_graph, LogLevel level) {
  ShortFit fit;
  configure_log({.level = level});
  set_log_observer([&](LogLevel, const std::string& line) { fit.log += line + "\n"; });
  torch::manual_seed(1);
  const auto model = std::make_shared<Mlp>(MlpOptions{.hidden = {16, 16}});
  Digits digits({.batch_size = 32});
  Trainer trainer({.max_epochs = 1, .step_graph = step_graph, .limit_train_batches = 12});
  trainer.fit(model, digits);
  set_log_observer({});
  for (const at::Tensor& weight : model->parameters()) fit.weights.push_back(weight.detach());
  return fit;
}

}  // namespace kindling
