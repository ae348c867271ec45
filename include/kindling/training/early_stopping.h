#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/training/callback.h"

namespace kindling {

// Names, defaults and meanings are those of Lightning's EarlyStopping.
struct EarlyStoppingOptions {
  std::string monitor{};                         // a value of the epoch record; empty: the model's monitor()
  std::string mode{};                            // what is better; empty: the model's, for its own monitor()
  double min_delta = 0;                          // smallest change that counts as an improvement
  std::int64_t patience = 3;                     // checks without an improvement before the fit ends
  bool strict = true;                            // a missing value is an error
  bool check_finite = true;                      // a NaN or infinite value ends the fit
  std::optional<double> stopping_threshold{};    // a better value than this ends the fit
  std::optional<double> divergence_threshold{};  // a worse value than this ends the fit

  static constexpr auto fields = kindling::fields(
      kindling::field(
          "monitor", &EarlyStoppingOptions::monitor,
          {.doc = "value that should improve; empty: the model's monitor()", .example = "\"val_loss\""}),
      kindling::field("mode", &EarlyStoppingOptions::mode,
                      {.doc = "whether smaller or larger values are better; empty: as the model says",
                       .choices = "|min|max"}),
      kindling::field("min_delta", &EarlyStoppingOptions::min_delta,
                      {.doc = "smallest change that counts as an improvement", .min = 0}),
      kindling::field("patience", &EarlyStoppingOptions::patience,
                      {.doc = "validations without improvement before the run ends", .min = 0}),
      kindling::field("strict", &EarlyStoppingOptions::strict, {.doc = "a missing value is an error"}),
      kindling::field("check_finite", &EarlyStoppingOptions::check_finite,
                      {.doc = "end the run if the value is NaN or infinite"}),
      kindling::field("stopping_threshold", &EarlyStoppingOptions::stopping_threshold,
                      {.doc = "end the run when the value is better than this", .example = "0.99"}),
      kindling::field("divergence_threshold", &EarlyStoppingOptions::divergence_threshold,
                      {.doc = "end the run when the value is worse than this", .example = "10.0"}));
};

// Ends a fit (FitReason::early_stop) when a value of the epoch record has not improved for `patience` epochs
// that have it. Epochs without the value do not count. If the value is missing although the epoch was
// validated, or if the data has no validation at all, `strict` makes that a ConfigError that names the
// available values. Logs why it ended a fit. Its state is saved: a resumed run keeps the remaining patience,
// and a run that it had ended is ended again, unless the options have changed so that it would not be.
class KINDLING_API EarlyStopping : public Callback {
 public:
  // Throws ConfigError for options out of range.
  explicit EarlyStopping(EarlyStoppingOptions options = {});
  ~EarlyStopping() override;

  std::optional<double> best() const;            // so far
  std::int64_t num_without_improvement() const;  // consecutive epochs

  // True if the latest value and the remaining patience end the run. A resumed run calls it again.
  bool wants_stop() const;
  // Returns why, for display: "val_loss has not improved for 3 epochs" ("validations" unless each epoch is
  // validated once), "val_loss is nan". Empty if wants_stop() is false.
  std::string stop_reason() const;

  void on_fit_start(Trainer& trainer, Module& model) override;
  void on_resume(Trainer& trainer, Module& model) override;
  void on_validation_end(Trainer& trainer, Module& model) override;
  void on_validation_record(Trainer& trainer, Module& model, const Record& record) override;
  void on_epoch_end(Trainer& trainer, Module& model, const Record& record) override;
  void save_state(StateDict& state) const override;
  void load_state(const StateDict& state) override;
  std::string type_name() const override { return "EarlyStopping"; }
  std::vector<std::pair<std::string, std::string>> shared_options() const override;
  bool stops_training() const override { return wants_stop(); }

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kindling
