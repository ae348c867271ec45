#include "training/step/loss_per_step.h"

#include <string>

#include "kindling/base/error.h"
#include "kindling/nn/classifier.h"

namespace kindling {

void require_one_loss_per_step(const Module& model, const TrainerOptions& options, std::int64_t num_ranks) {
  const auto* const classifier = dynamic_cast<const Classifier*>(&model);
  if (classifier == nullptr || !classifier->class_weights().defined()) return;
  std::string found;
  if (num_ranks > 1)
    found = std::to_string(num_ranks) + " ranks";
  else if (options.gradient_shards > 1)
    found = "gradient_shards = " + std::to_string(options.gradient_shards);
  else if (options.accumulate_grad_batches > 1)
    found = "accumulate_grad_batches = " + std::to_string(options.accumulate_grad_batches);
  if (found.empty()) return;
  throw ConfigError({.place = "Trainer",
                     .found = "the model has class weights, and with " + found +
                              " a step adds up several losses, so their mean would not be the weighted mean "
                              "of PyTorch",
                     .wanted = "one batch per step, on one rank",
                     .remedy = "balance the samples instead: data.sampler = \"balanced\" (WeightedSampler)"});
}

}  // namespace kindling
