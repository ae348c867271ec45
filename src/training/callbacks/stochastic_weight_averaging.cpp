#include "kindling/training/stochastic_weight_averaging.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kindling/base/error.h"
#include "kindling/base/number_text.h"
#include "kindling/config/printer.h"
#include "kindling/training/trainer.h"
#include "kindling/training/update_bn.h"
#include "tensors/saved_number.h"

namespace kindling {
namespace {

constexpr const char* kPlace = "StochasticWeightAveraging";
constexpr const char* kFirstEpoch = "first_epoch";
const std::string kFirstLr = "first_lr.";

[[noreturn]] void refuse_swa(const std::string& found, const std::string& wanted,
                             const std::string& remedy = "") {
  throw ConfigError({.place = kPlace, .found = found, .wanted = wanted, .remedy = remedy});
}

}  // namespace

StochasticWeightAveraging::StochasticWeightAveraging(StochasticWeightAveragingOptions options)
    : WeightAverage(kPlace, options.evaluate, options.apply_at_end), options_(std::move(options)) {
  validate(options_, kPlace);
  if (options_.swa_lrs.empty())
    refuse_swa("swa_lrs is not set", "the final learning rate", "for example swa_lrs = {0.05}");
  const double start = options_.swa_epoch_start;
  if (start >= 1 && start != std::floor(start))
    refuse_swa("swa_epoch_start is " + number_text(start), "an epoch, or a fraction of max_epochs below 1");
}

void StochasticWeightAveraging::on_fit_start(Trainer& trainer, Module& model) {
  WeightAverage::on_fit_start(trainer, model);
  start_of(trainer.options());  // throws before the first step if the options do not fit
}

void StochasticWeightAveraging::require_fit(const TrainerOptions& trainer, const Optimizer& optimizer) const {
  start_of(trainer);
  require_lr_per_group(optimizer);
}

std::int64_t StochasticWeightAveraging::start_of(const TrainerOptions& trainer) const {
  const auto& max_epochs = trainer.max_epochs;
  const double start = options_.swa_epoch_start;
  if (start < 1 && !max_epochs)
    refuse_swa("swa_epoch_start is the fraction " + number_text(start) + ", but max_epochs is not set",
               "max_epochs, which the fraction refers to",
               "set max_epochs, or set swa_epoch_start to an epoch");
  if (max_epochs && !trainer.fast_dev_run && start > static_cast<double>(*max_epochs))
    refuse_swa(
        "swa_epoch_start is " + number_text(start) + ", after max_epochs = " + std::to_string(*max_epochs),
        "an epoch of the run");
  const double epoch = start < 1 ? std::floor(start * static_cast<double>(*max_epochs)) : start;
  return std::max<std::int64_t>(static_cast<std::int64_t>(epoch) - 1, 0);
}

void StochasticWeightAveraging::on_before_optimizer_step(Trainer& trainer, Module&, Optimizer& optimizer) {
  begin(trainer);
  const std::int64_t epoch = trainer.progress().epoch;
  if (!first_epoch_) {
    if (epoch < start_of(trainer.options())) return;
    first_epoch_ = epoch;
  }
  if (first_lrs_.empty()) note_rates(optimizer);
  if (optimizer_ == nullptr) optimizer_ = &optimizer;
  if (optimizer_ != &optimizer) refuse_swa("the model has several optimizers", "one optimizer");
  const double share = share_of_swa_lr(epoch);
  for (std::size_t group = 0; group < first_lrs_.size(); ++group) {
    const double swa_lr = options_.swa_lrs[std::min(group, options_.swa_lrs.size() - 1)];
    optimizer.set_lr(group, share * swa_lr + (1 - share) * first_lrs_[group]);
  }
}

void StochasticWeightAveraging::require_lr_per_group(const Optimizer& optimizer) const {
  const std::size_t num_groups = optimizer.groups().size();
  if (options_.swa_lrs.size() == 1 || options_.swa_lrs.size() == num_groups) return;
  refuse_swa("there are " + std::to_string(options_.swa_lrs.size()) + " swa_lrs and " +
                 std::to_string(num_groups) + " parameter groups",
             "one for all groups, or one for each");
}

void StochasticWeightAveraging::note_rates(const Optimizer& optimizer) {
  require_lr_per_group(optimizer);
  for (std::size_t group = 0; group < optimizer.groups().size(); ++group)
    first_lrs_.push_back(optimizer.lr(group));
}

double StochasticWeightAveraging::share_of_swa_lr(std::int64_t epoch) const {
  if (options_.annealing_epochs == 0) return 1;
  const double t = std::min(
      static_cast<double>(epoch - *first_epoch_) / static_cast<double>(options_.annealing_epochs), 1.);
  return options_.annealing_strategy == "cos" ? (1 - std::cos(std::numbers::pi * t)) / 2 : t;
}

bool StochasticWeightAveraging::should_update_after_epoch(std::int64_t epoch) const {
  return first_epoch_ && epoch >= *first_epoch_;
}

double StochasticWeightAveraging::weight(std::int64_t num_averaged) const {
  return 1 / static_cast<double>(num_averaged + 1);
}

WeightAverage::Buffers StochasticWeightAveraging::buffers(const Module& model) const {
  return has_batch_norm(model) ? Buffers::recomputed : Buffers::own;
}

void StochasticWeightAveraging::compute_buffers(Trainer& trainer, Module& model) {
  if (trainer.data() == nullptr)
    throw Error({.place = kPlace,
                 .found = "the trainer has no data to recompute the batch norm statistics from",
                 .wanted = "the training data",
                 .remedy = "call prepare_data(data) first"});
  update_bn(trainer, model, *trainer.data());
}

void StochasticWeightAveraging::reset() {
  first_epoch_.reset();
  first_lrs_.clear();
  optimizer_ = nullptr;
}

void StochasticWeightAveraging::save_state(StateDict& state) const {
  WeightAverage::save_state(state);
  if (first_epoch_) state.metadata[kFirstEpoch] = std::to_string(*first_epoch_);
  for (std::size_t group = 0; group < first_lrs_.size(); ++group)
    state.metadata[kFirstLr + std::to_string(group)] = number_text(first_lrs_[group]);
}

void StochasticWeightAveraging::load_state(const StateDict& state) {
  WeightAverage::load_state(state);
  reset();
  first_epoch_ = find_number<std::int64_t>(state.metadata, kFirstEpoch, {.min = 0});
  for (std::size_t group = 0;; ++group) {
    const auto lr = find_number<double>(state.metadata, kFirstLr + std::to_string(group));
    if (!lr) break;
    first_lrs_.push_back(*lr);
  }
}

std::vector<std::pair<std::string, std::string>> StochasticWeightAveraging::shared_options() const {
  return value_texts(options_);
}

}  // namespace kindling
