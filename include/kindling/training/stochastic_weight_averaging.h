#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/training/weight_average.h"

namespace kindling {

struct TrainerOptions;

// Names and defaults are those of Lightning's StochasticWeightAveraging.
struct StochasticWeightAveragingOptions {
  std::vector<double> swa_lrs{};       // final learning rate: one for all groups, or one per group
  double swa_epoch_start = 0.8;        // first epoch, counted from 1; below 1: a fraction of max_epochs
  std::int64_t annealing_epochs = 10;  // epochs until the rate reaches swa_lrs
  std::string annealing_strategy = "cos";
  bool evaluate = true;      // validations use the averages
  bool apply_at_end = true;  // the model keeps the averages after the fit

  static constexpr auto fields = kindling::fields(
      kindling::field("swa_lrs", &StochasticWeightAveragingOptions::swa_lrs,
                      {.doc = "final learning rate, one for all parameter groups or one per group; required",
                       .min = 0,
                       .min_excluded = true,
                       .example = "[0.01]"}),
      kindling::field("swa_epoch_start", &StochasticWeightAveragingOptions::swa_epoch_start,
                      {.doc = "first epoch, counted from 1; below 1: a fraction of max_epochs", .min = 0}),
      kindling::field("annealing_epochs", &StochasticWeightAveragingOptions::annealing_epochs,
                      {.doc = "epochs until the rate reaches swa_lrs; 0: at once", .min = 0}),
      kindling::field("annealing_strategy", &StochasticWeightAveragingOptions::annealing_strategy,
                      {.doc = "shape of the annealing", .choices = "cos|linear"}),
      kindling::field("evaluate", &StochasticWeightAveragingOptions::evaluate,
                      {.doc = "validate the averaged weights"}),
      kindling::field("apply_at_end", &StochasticWeightAveragingOptions::apply_at_end,
                      {.doc = "copy the averages into the model after the fit"}));
};

// Averages the weights at the ends of the last epochs, with a learning rate that keeps them moving (Izmailov
// et al., 2018; torch.optim.swa_utils). The first of these epochs is swa_epoch_start; a fraction s means
// epoch max(⌊s · max_epochs⌋, 1).
//
// From its first epoch on it sets the learning rate, instead of a schedule or the optimizer's own rate: in
// the k-th epoch (from 0) it is a · swa_lr + (1 - a) · r, as in SWALR. r is the rate of the group's first
// step in that epoch, t = min(k / annealing_epochs, 1) and a = (1 - cos πt) / 2, or t for "linear". Callbacks
// that set the rate and come later in TrainerOptions::callbacks override it.
//
// Batch norm's running statistics are not averaged. update_bn() computes them for the averages, in one pass
// over the training data, before the averages are evaluated or applied. Models without batch norm need no
// such pass.
class KINDLING_API StochasticWeightAveraging : public WeightAverage {
 public:
  // Throws ConfigError for options out of range and without swa_lrs. on_fit_start() throws it for a fraction
  // without max_epochs, and for a start after max_epochs.
  explicit StochasticWeightAveraging(StochasticWeightAveragingOptions options);

  // Throws the ConfigError with which a fit with these trainer options and this optimizer would end.
  void require_fit(const TrainerOptions& trainer, const Optimizer& optimizer) const;

  void on_fit_start(Trainer& trainer, Module& model) override;
  void on_before_optimizer_step(Trainer& trainer, Module& model, Optimizer& optimizer) override;
  void save_state(StateDict& state) const override;
  void load_state(const StateDict& state) override;

  std::vector<std::pair<std::string, std::string>> shared_options() const override;

 protected:
  bool should_update_after_epoch(std::int64_t epoch) const override;
  double weight(std::int64_t num_averaged) const override;
  Buffers buffers(const Module& model) const override;
  void compute_buffers(Trainer& trainer, Module& model) override;
  void reset() override;

 private:
  std::int64_t start_of(const TrainerOptions& trainer) const;
  double share_of_swa_lr(std::int64_t epoch) const;
  void require_lr_per_group(const Optimizer& optimizer) const;
  void note_rates(const Optimizer& optimizer);

  StochasticWeightAveragingOptions options_;
  std::optional<std::int64_t> first_epoch_{};  // from 0; absent: not started
  std::vector<double> first_lrs_{};            // of the groups, at the first step
  const Optimizer* optimizer_ = nullptr;       // the one whose rates it sets
};

}  // namespace kindling
