#include "training/step/repeated_loss.h"

#include <utility>

#include "nn/precision.h"

namespace kindling {

std::vector<ErrorParts> repeated_loss_errors(const Optimizer& optimizer, const TrainerOptions& options,
                                             const RepeatedLossConditions& conditions) {
  if (!optimizer.needs_closure()) return {};
  std::vector<ErrorParts> errors;
  if (conditions.reduces)
    errors.push_back(
        {.place = "optimizer",
         .found = "it evaluates the loss several times, which data-parallel training does not support",
         .wanted = "another optimizer, or a single process"});
  const bool skips = options.on_nonfinite == "skip" && !conditions.is_on_cpu;
  const std::pair<const char*, bool> is_set[] = {
      {"accumulate_grad_batches", options.accumulate_grad_batches > 1},
      {"gradient_clip_val", options.gradient_clip_val > 0},
      {"precision", Precision::named(options.precision).scales_gradients},
      {"on_nonfinite", skips}};
  for (const auto& [option, is_refused] : is_set)
    if (is_refused)
      errors.push_back({.place = option,
                        .found = "it is set, but the optimizer evaluates the loss of a batch several times",
                        .wanted = "the default value with such an optimizer (lbfgs)"});
  return errors;
}

}  // namespace kindling
