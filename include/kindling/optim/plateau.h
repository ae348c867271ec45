#pragma once

#include <cstdint>
#include <string>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/tensors/state_dict.h"

namespace kindling {

// Names and defaults as in torch.optim.lr_scheduler.ReduceLROnPlateau, except `monitor`.
struct PlateauScheduleOptions {
  std::string monitor{};  // a value of the epoch record; empty: the model's monitor()
  std::string mode{};     // min or max is better; empty: the model's for its own monitor(), else min
  double factor = 0.1;
  std::int64_t patience = 10;
  double threshold = 1e-4;
  std::string threshold_mode = "rel";
  std::int64_t cooldown = 0;
  double min_lr = 0;
  double eps = 1e-8;

  static constexpr auto fields = kindling::fields(
      kindling::field(
          "monitor", &PlateauScheduleOptions::monitor,
          {.doc = "value that should improve; empty: the model's monitor()", .example = "\"val_loss\""}),
      kindling::field("mode", &PlateauScheduleOptions::mode,
                      {.doc = "whether smaller or larger values are better; empty: as the model says",
                       .choices = "|min|max"}),
      kindling::field("factor", &PlateauScheduleOptions::factor,
                      {.doc = "factor of each reduction", .min = 0, .max = 1, .max_excluded = true}),
      kindling::field("patience", &PlateauScheduleOptions::patience,
                      {.doc = "epochs without improvement before a reduction", .min = 0}),
      kindling::field("threshold", &PlateauScheduleOptions::threshold,
                      {.doc = "smallest change that counts as an improvement", .min = 0}),
      kindling::field("threshold_mode", &PlateauScheduleOptions::threshold_mode,
                      {.doc = "threshold relative to the best value, or absolute", .choices = "rel|abs"}),
      kindling::field("cooldown", &PlateauScheduleOptions::cooldown,
                      {.doc = "epochs after a reduction that are not counted", .min = 0}),
      kindling::field("min_lr", &PlateauScheduleOptions::min_lr, {.doc = "smallest learning rate", .min = 0}),
      kindling::field("eps", &PlateauScheduleOptions::eps,
                      {.doc = "smaller reductions are skipped", .min = 0}));
};

// Counts how often a value, observed once per epoch, has stopped improving, as ReduceLROnPlateau counts its
// reductions. A trainer creates one if its schedule needs it; a loop without a trainer creates its own, with
// `mode` in the options.
class KINDLING_API PlateauCounter {
 public:
  // Throws ConfigError for options out of range.
  explicit PlateauCounter(PlateauScheduleOptions options);

  // Adds the value of the next epoch. NaN is not an improvement.
  void observe(double value);
  std::int64_t count() const noexcept { return count_; }
  const PlateauScheduleOptions& options() const noexcept { return options_; }

  // Save and load as metadata. load() keeps the counter's value if an entry is missing, and throws
  // CheckpointError for an entry that is not a number; then nothing has changed.
  void save(StateDict& state) const;
  void load(const StateDict& state);

 private:
  bool is_better(double value) const;

  PlateauScheduleOptions options_;
  double best_;
  std::int64_t num_bad_ = 0, cooldown_ = 0, count_ = 0;
};

}  // namespace kindling
