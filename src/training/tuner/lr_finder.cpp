#include "kindling/training/lr_finder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "device/libtorch_errors.h"
#include "kindling/base/error.h"
#include "kindling/base/number_text.h"
#include "kindling/training/trainer.h"
#include "tensors/state_fit.h"
#include "training/tuner/trial_fit.h"

namespace kindling {
namespace {

constexpr double kSmoothing = 0.98;

void require_one_lr(const Optimizer& optimizer) {
  if (optimizer.needs_closure())
    throw ConfigError({.place = "find_lr",
                       .found = "the optimizer evaluates the loss of a batch several times (lbfgs)",
                       .wanted = "an optimizer that evaluates the loss once per step"});
  if (!(*optimizer.groups().front().lr > 0))
    throw ConfigError({.place = "find_lr",
                       .found = "the learning rate of the first parameter group is 0",
                       .wanted = "a learning rate above 0, because the other groups keep their ratio to it"});
}

// Sets the learning rate of each step and collects the losses as they arrive, until they are too large.
class Sweep : public Callback, public Logger {
 public:
  explicit Sweep(const LrFinderOptions& options) : options_(options) {
    result_.is_exponential = options.mode == "exponential";
  }

  void on_before_optimizer_step(Trainer& trainer, Module&, Optimizer& optimizer) override {
    require_one_lr(optimizer);
    const double first = *optimizer.groups().front().lr, rate = rate_of(trainer.progress().global_step);
    result_.initial_lr = first;
    for (std::size_t group = 0; group < optimizer.groups().size(); ++group)
      optimizer.set_lr(group, rate * (*optimizer.groups()[group].lr / first));
  }

  void on_train_batch_end(Trainer& trainer, Module&) override {
    if (result_.stopped_early) trainer.request_stop();
  }

  void write(const Record& record) override {
    const double* const loss = record.find("train_loss_step");
    if (record.kind == Record::Kind::step && loss != nullptr && !result_.stopped_early)
      add(*record.find("lr"), *loss);
  }

  // Returns the result of rank 0, the only one that gets records. Collective.
  LrFinderResult result(ProcessGroup* group) const;

 private:
  double rate_of(std::int64_t step) const {
    const double share = static_cast<double>(step) / static_cast<double>(options_.num_training_steps - 1);
    return result_.is_exponential ? options_.min_lr * std::pow(options_.max_lr / options_.min_lr, share)
                                  : options_.min_lr + share * (options_.max_lr - options_.min_lr);
  }

  void add(double lr, double loss) {
    average_ = kSmoothing * average_ + (1 - kSmoothing) * loss;
    result_.lrs.push_back(lr);
    result_.losses.push_back(loss);
    const auto steps = static_cast<double>(result_.lrs.size());
    const double smoothed = average_ / (1 - std::pow(kSmoothing, steps));
    result_.smoothed.push_back(smoothed);
    const double best = *std::ranges::min_element(result_.smoothed);
    const double bound = options_.early_stop_threshold * best;
    result_.stopped_early = !std::isfinite(smoothed) || (bound > 0 && smoothed > bound);
  }

  const LrFinderOptions options_;
  LrFinderResult result_;
  double average_ = 0;
};

LrFinderResult Sweep::result(ProcessGroup* group) const {
  if (group == nullptr) return result_;
  LrFinderResult shared = result_;
  std::vector<double> numbers{result_.stopped_early ? 1. : 0.};
  for (const auto* curve : {&result_.lrs, &result_.losses, &result_.smoothed})
    numbers.insert(numbers.end(), curve->begin(), curve->end());
  const std::string of_first =
      group->all_gather({reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(double)})
          .front();
  numbers.resize(of_first.size() / sizeof(double));
  std::memcpy(numbers.data(), of_first.data(), of_first.size());
  shared.stopped_early = numbers.front() != 0;
  auto next = numbers.begin() + 1;
  const auto length = static_cast<std::ptrdiff_t>(numbers.size() / 3);
  for (auto* curve : {&shared.lrs, &shared.losses, &shared.smoothed}) {
    curve->assign(next, next + length);
    next += length;
  }
  return shared;
}

void check(const LrFinderOptions& options) {
  validate(options, "LrFinderOptions");
  if (options.min_lr >= options.max_lr)
    throw ConfigError(
        {.place = "LrFinderOptions",
         .found = "min_lr = " + number_text(options.min_lr) + ", max_lr = " + number_text(options.max_lr),
         .wanted = "min_lr below max_lr"});
}

void require_one_optimizer(const Module& model) {
  if (!model.updates_manually()) return;
  throw ConfigError({.place = "find_lr",
                     .found = "the model is a ManualModule, which creates its optimizers itself",
                     .wanted = "a model with one optimizer",
                     .remedy = "tune their learning rates by hand"});
}

// Returns the slope of the curve between the neighbouring steps.
double slope(const std::vector<double>& curve, std::size_t at, std::size_t first, std::size_t last) {
  const std::size_t before = at == first ? at : at - 1, behind = at == last ? at : at + 1;
  return (curve[behind] - curve[before]) / static_cast<double>(behind - before);
}

}  // namespace

std::optional<double> LrFinderResult::suggestion(std::int64_t skip_begin, std::int64_t skip_end) const {
  std::size_t num_finite = 0;
  while (num_finite < smoothed.size() && std::isfinite(smoothed[num_finite])) ++num_finite;
  const auto behind = static_cast<std::int64_t>(smoothed.size()) - skip_end;
  const std::int64_t end = std::min<std::int64_t>(behind, static_cast<std::int64_t>(num_finite));
  if (skip_begin < 0 || skip_end < 0 || end - skip_begin < 2) return std::nullopt;
  const auto first = static_cast<std::size_t>(skip_begin), last = static_cast<std::size_t>(end - 1);
  std::size_t steepest = first;
  for (std::size_t at = first; at <= last; ++at)
    if (slope(smoothed, at, first, last) < slope(smoothed, steepest, first, last)) steepest = at;
  return slope(smoothed, steepest, first, last) < 0 ? std::optional(lrs[steepest]) : std::nullopt;
}

Chart LrFinderResult::chart() const {
  Chart chart{.title = "Learning rate finder",
              .xlabel = "learning rate",
              .ylabel = "loss",
              .xscale = is_exponential ? AxisScale::log : AxisScale::linear,
              .curves = {{.label = "smoothed loss", .x = lrs, .y = smoothed}}};
  if (const auto lr = suggestion()) {
    std::vector<double> heights = smoothed;
    std::erase_if(heights, [](double height) { return !std::isfinite(height); });
    const auto [low, high] = std::ranges::minmax(heights);
    chart.curves.push_back({.label = "suggestion " + short_text(*lr, 3), .x = {*lr, *lr}, .y = {low, high}});
  }
  return chart;
}

void require_one_lr(const TrainerOptions& trainer, Module& model) {
  require_one_optimizer(model);
  if (trainer.optimizer || !layers_without_shape(model).empty()) return;
  if (const auto optimizer = model.configure_optimizers()) require_one_lr(*optimizer);
}

LrFinderResult find_lr(const TrainerOptions& trainer, const std::shared_ptr<Module>& model, DataModule& data,
                       const LrFinderOptions& options, const StopToken& stop) {
  return with_libtorch_errors("find_lr", [&] {
    check(options);
    require_one_optimizer(*model);
    const auto sweep = std::make_shared<Sweep>(options);
    TrainerOptions trial = trial_options(trainer, options.num_training_steps);
    trial.log_every_n_steps = 1;
    trial.callbacks = {sweep, std::make_shared<StopElsewhere>(stop)};
    trial.loggers = {sweep};
    const TrialScope scope(*model, trial_device(trial));
    Trainer(trial).fit(model, data);
    share_stop(group_of(trial), stop);
    return sweep->result(group_of(trial));
  });
}

}  // namespace kindling
