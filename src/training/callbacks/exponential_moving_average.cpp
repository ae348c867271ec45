#include "kindling/training/exponential_moving_average.h"

#include <algorithm>

#include "kindling/base/error.h"
#include "kindling/config/printer.h"

namespace kindling {

ExponentialMovingAverage::ExponentialMovingAverage(ExponentialMovingAverageOptions options)
    : WeightAverage("ExponentialMovingAverage", options.evaluate, options.apply_at_end), options_(options) {
  validate(options_, "ExponentialMovingAverage");
  if (options_.update_every_n_steps == 0 && !options_.update_starting_at_epoch)
    throw ConfigError(
        {.place = "ExponentialMovingAverage",
         .found = "update_every_n_steps is 0, and update_starting_at_epoch is not set",
         .wanted = "at least one of them, so that the average is updated after steps or epochs"});
}

bool ExponentialMovingAverage::should_update_after_step(std::int64_t step) const {
  return options_.update_every_n_steps > 0 && step % options_.update_every_n_steps == 0 &&
         step >= options_.update_starting_at_step.value_or(0);
}

bool ExponentialMovingAverage::should_update_after_epoch(std::int64_t epoch) const {
  return options_.update_starting_at_epoch && epoch >= *options_.update_starting_at_epoch;
}

double ExponentialMovingAverage::weight(std::int64_t num_averaged) const {
  const auto n = static_cast<double>(num_averaged);
  return 1 - (options_.decay_warmup ? std::min(options_.decay, (1 + n) / (10 + n)) : options_.decay);
}

WeightAverage::Buffers ExponentialMovingAverage::buffers(const Module&) const {
  return options_.use_buffers ? Buffers::averaged : Buffers::own;
}

std::vector<std::pair<std::string, std::string>> ExponentialMovingAverage::shared_options() const {
  return value_texts(options_);
}

}  // namespace kindling
