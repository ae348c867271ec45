#pragma once

#include <cstdint>
#include <optional>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/training/weight_average.h"

namespace kindling {

// Names, defaults and meanings are those of Lightning's EMAWeightAveraging, where it has them.
struct ExponentialMovingAverageOptions {
  double decay = 0.999;
  std::int64_t update_every_n_steps = 1;                   // after steps 0, n, 2n, …; 0: never after steps
  std::optional<std::int64_t> update_starting_at_step{};   // first step with an update, counted from 0
  std::optional<std::int64_t> update_starting_at_epoch{};  // first epoch with an update at its end, from 0
  bool use_buffers = true;    // also average floating-point buffers, such as running statistics
  bool decay_warmup = false;  // smaller decay for the first updates
  bool evaluate = true;       // validations use the averages
  bool apply_at_end = true;   // the model keeps the averages after the fit

  static constexpr auto fields = kindling::fields(
      kindling::field("decay", &ExponentialMovingAverageOptions::decay,
                      {.doc = "fraction of the average that an update keeps", .min = 0, .max = 1}),
      kindling::field("update_every_n_steps", &ExponentialMovingAverageOptions::update_every_n_steps,
                      {.doc = "update every n steps; 0: never after steps", .min = 0}),
      kindling::field("update_starting_at_step", &ExponentialMovingAverageOptions::update_starting_at_step,
                      {.doc = "first step with an update, counted from 0", .min = 0, .example = "100"}),
      kindling::field("update_starting_at_epoch", &ExponentialMovingAverageOptions::update_starting_at_epoch,
                      {.doc = "also update at the end of each epoch from this one on, counted from 0",
                       .min = 0,
                       .example = "1"}),
      kindling::field("use_buffers", &ExponentialMovingAverageOptions::use_buffers,
                      {.doc = "also average floating-point buffers, such as running statistics"}),
      kindling::field("decay_warmup", &ExponentialMovingAverageOptions::decay_warmup,
                      {.doc = "limit the decay to (1 + n) / (10 + n) after n updates"}),
      kindling::field("evaluate", &ExponentialMovingAverageOptions::evaluate,
                      {.doc = "validate the averaged weights"}),
      kindling::field("apply_at_end", &ExponentialMovingAverageOptions::apply_at_end,
                      {.doc = "copy the averages into the model after the fit"}));
};

// average ← decay · average + (1 - decay) · weights after each optimizer step (Polyak, Juditsky, 1992;
// torch.optim.swa_utils.get_ema_multi_avg_fn). A step that was skipped because it was not finite still moves
// the average towards the current weights. decay_warmup is TensorFlow's rule
// (tf.train.ExponentialMovingAverage with num_updates): in a short run, the first steps do not dominate the
// average.
class KINDLING_API ExponentialMovingAverage : public WeightAverage {
 public:
  // Throws ConfigError for options out of range, or if they never update the average.
  explicit ExponentialMovingAverage(ExponentialMovingAverageOptions options = {});

  std::vector<std::pair<std::string, std::string>> shared_options() const override;

 protected:
  bool should_update_after_step(std::int64_t step) const override;
  bool should_update_after_epoch(std::int64_t epoch) const override;
  double weight(std::int64_t num_averaged) const override;
  Buffers buffers(const Module& model) const override;

 private:
  ExponentialMovingAverageOptions options_;
};

}  // namespace kindling
