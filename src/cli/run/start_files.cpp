#include "cli/run/start_files.h"

#include <utility>

#include "kindling/base/error.h"
#include "kindling/optim/python_optimizer.h"

namespace kindling {

OptimizerFactory with_start(const OptimizerFactory& make, const OptimizerStartOptions& start) {
  if (!start.init_state) return make;
  return [make, start](ParameterGroups parameters) {
    auto optimizer = make(std::move(parameters));
    load_python_optimizer(*optimizer, *start.init_state, start.init_key);
    return optimizer;
  };
}

WeightsSource start_from_files(const RunConfig& config, Module& model) {
  WeightsSource weights;
  if (config.model.init_weights) {
    weights = find_weights(config.model.init_weights->string());
    load_weights_from(model, weights.file, config.model.init_key);
  }
  if (!config.optimizer_start.init_state) return weights;
  if (!config.model.init_weights)
    throw ConfigError({.place = "optimizer.init_state",
                       .found = "an optimizer state belongs to the weights that it was saved with",
                       .wanted = "model.init_weights in addition"});
  with_start(config.trainer_options().optimizer, config.optimizer_start)(ParameterGroups(model));
  return weights;
}

}  // namespace kindling
