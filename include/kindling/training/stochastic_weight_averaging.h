#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/training/weight_average.h"

namespace kindling {

// Names and defaults are those of Lightning's StochasticWeightAveraging.
struct StochasticWeightAveragingOptions {
  std::vector<double> swa_lrs{};       // the learning rate that averaging ends up with: one, or one per group
  double swa_epoch_start = 0.8;        // the first epoch, from 1 on; below 1: as a share of max_epochs
  std::int64_t annealing_epochs = 10;  // from the rate there is to swa_lrs
  std::string annealing_strategy = "cos";
  bool evaluate = true;      // validation sees the averages
  bool apply_at_end = true;  // the model has them when the fit is over

  static constexpr auto fields = kindling::fields(
      kindling::field("swa_lrs", &StochasticWeightAveragingOptions::swa_lrs,
                      {.doc = "final learning rate, one for all parameter groups or one per group; required",
                       .min = 0,
                       .min_excluded = true}),
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

// The mean of the weights at the ends of the last epochs, with a learning rate that keeps them moving
// (Izmailov et al., 2018; torch.optim.swa_utils). The first of these epochs is swa_epoch_start; a share s
// means epoch max(⌊s · max_epochs⌋, 1).
//
// From its first epoch on it sets the learning rate, in the place of a schedule or of what the optimizer had:
// in the k-th epoch (from 0) it is a · swa_lr + (1 - a) · r, as SWALR has it, where r is the rate of the
// group's first step there, t = min(k / annealing_epochs, 1) and a = (1 - cos πt) / 2, or t for "linear".
// Callbacks that set the rate and stand behind it in TrainerOptions::callbacks have the last word.
//
// Batch norm's running statistics belong to no average. update_bn() computes them for it, one pass over the
// training data, before the averages are evaluated or applied; models without batch norm have no such pass.
class KINDLING_API StochasticWeightAveraging : public WeightAverage {
 public:
  // Throws ConfigError for options out of range and without swa_lrs. When the training begins: for a share
  // without max_epochs, and for a start behind them.
  explicit StochasticWeightAveraging(StochasticWeightAveragingOptions options);

  void on_fit_start(Trainer& trainer, Module& model) override;
  void on_before_optimizer_step(Trainer& trainer, Module& model, Optimizer& optimizer) override;
  void save_state(StateDict& state) const override;
  void load_state(const StateDict& state) override;

 protected:
  bool should_update_after_epoch(std::int64_t epoch) const override;
  double weight(std::int64_t num_averaged) const override;
  Buffers buffers(const Module& model) const override;
  void compute_buffers(Trainer& trainer, Module& model) override;
  void reset() override;

 private:
  std::int64_t start_of(const Trainer& trainer) const;
  double share_of_swa_lr(std::int64_t epoch) const;
  void note_rates(const Optimizer& optimizer);

  StochasticWeightAveragingOptions options_;
  std::optional<std::int64_t> first_epoch_{};  // from 0; absent: not begun
  std::vector<double> first_lrs_{};            // of the groups, at the first step
  const Optimizer* optimizer_ = nullptr;       // whose rates it sets
};

}  // namespace kindling
