#include "kindling/training/early_stopping.h"

#include <cmath>

#include "base/joined.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/base/number_text.h"
#include "kindling/config/printer.h"
#include "kindling/loggers/best_so_far.h"
#include "kindling/training/trainer.h"
#include "nn/monitored_value.h"
#include "tensors/saved_number.h"
#include "training/callbacks/current_run.h"

namespace kindling {
namespace {

constexpr const char* kStopping = "EarlyStopping";
constexpr const char* kBestValue = "best";
constexpr const char* kLatestValue = "latest";
constexpr const char* kWaited = "num_without_improvement";

EarlyStoppingOptions checked(EarlyStoppingOptions options) {
  validate(options, kStopping);
  return options;
}

bool is_validated_once_per_epoch(const TrainerOptions& options) {
  const CountOrFraction& interval = options.val_check_interval;
  return options.check_val_every_n_epoch == 1 && interval.is_fraction() && interval.number() == 1;
}

bool has_validation(const Trainer& trainer) {
  return trainer.data() != nullptr && trainer.options().limit_val_batches != 0 &&
         trainer.data()->val_dataloader() != nullptr;
}

}  // namespace

class EarlyStopping::Impl {
 public:
  explicit Impl(EarlyStoppingOptions asked) : options(std::move(asked)) {}

  void clear() {
    best = {};
    latest.reset();
    num_waited = 0;
    is_validated = false;
  }

  void watch(const Module& model) { monitor = monitor_of(options.monitor, options.mode, model, kStopping); }

  bool is_better(double value, double than) const {
    return monitor.higher_is_better ? value > than : value < than;
  }

  // Custom training loops have no on_fit_start.
  void begin(const Trainer& trainer, const Module& model) {
    if (!run.changes(trainer)) return;
    clear();
    watch(model);
  }

  void take(double value, Trainer& trainer) {
    latest = value;
    BestSoFar so_far(monitor.higher_is_better);
    if (best) so_far.update(*best);
    if (so_far.update(monitor.higher_is_better ? value - options.min_delta : value + options.min_delta)) {
      best = value;
      num_waited = 0;
    } else {
      ++num_waited;
    }
    stop_if_due(trainer);
  }

  // Returns why training stops; empty: it continues.
  std::string reason_to_stop() const {
    if (const std::string reason = reason_of_value(number_text); !reason.empty() || !is_out_of_patience())
      return reason;
    return monitor.name + " is " + number_text(*latest) + ", and has not improved on " +
           (best ? number_text(*best) : "anything") + " for " + counted(num_waited, "validation");
  }

  std::string short_reason() const {
    const std::string reason = reason_of_value([](double value) { return short_text(value, 4); });
    if (!reason.empty() || !is_out_of_patience()) return reason;
    return monitor.name + " has not improved for " + counted(num_waited, unit);
  }

  bool is_out_of_patience() const { return num_waited > 0 && num_waited >= options.patience; }

  // Returns why the latest value alone ends training; empty: it does not.
  std::string reason_of_value(std::string (*number)(double)) const {
    const std::string what = monitor.name + " is " + number(*latest);
    const auto limit = [&](const char* name, double value) {
      return std::string(name) + " = " + number(value);
    };
    if (options.check_finite && !std::isfinite(*latest)) return what;
    if (options.stopping_threshold && is_better(*latest, *options.stopping_threshold))
      return what + ", better than " + limit("stopping_threshold", *options.stopping_threshold);
    if (options.divergence_threshold && is_better(*options.divergence_threshold, *latest))
      return what + ", worse than " + limit("divergence_threshold", *options.divergence_threshold);
    return {};
  }

  void stop_if_due(Trainer& trainer) const {
    if (!latest) return;
    const std::string reason = reason_to_stop();
    if (reason.empty()) return;
    log_info("early stop: " + reason);
    trainer.request_stop(FitReason::early_stop);
  }

  const EarlyStoppingOptions options;
  CurrentRun run;
  Module::Monitor monitor;
  std::optional<double> best, latest;
  std::int64_t num_waited = 0;
  const char* unit = "validation";  // in display
  bool is_validated = false;        // whether the running epoch has been validated
};

EarlyStopping::EarlyStopping(EarlyStoppingOptions options)
    : impl_(std::make_unique<Impl>(checked(std::move(options)))) {}
EarlyStopping::~EarlyStopping() = default;

std::optional<double> EarlyStopping::best() const { return impl_->best; }
std::int64_t EarlyStopping::num_without_improvement() const { return impl_->num_waited; }

std::string EarlyStopping::stop_reason() const { return wants_stop() ? impl_->short_reason() : ""; }

bool EarlyStopping::wants_stop() const { return impl_->latest && !impl_->reason_to_stop().empty(); }

void EarlyStopping::on_fit_start(Trainer& trainer, Module& model) {
  impl_->run = {};
  impl_->run.changes(trainer);
  impl_->clear();
  impl_->watch(model);
  impl_->unit = is_validated_once_per_epoch(trainer.options()) ? "epoch" : "validation";
}

void EarlyStopping::on_resume(Trainer& trainer, Module& model) {
  if (!impl_->run.resumes(trainer)) impl_->clear();
  impl_->watch(model);
  impl_->stop_if_due(trainer);
}

void EarlyStopping::on_validation_end(Trainer& trainer, Module&) {
  impl_->is_validated = trainer.progress().global_step > 0;  // the sanity check belongs to no epoch
}

void EarlyStopping::on_validation_record(Trainer& trainer, Module& model, const Record& record) {
  impl_->begin(trainer, model);
  impl_->is_validated = false;  // the validation at the end of the epoch follows
  if (const double* value = record.find(impl_->monitor.name)) impl_->take(*value, trainer);
}

void EarlyStopping::on_epoch_end(Trainer& trainer, Module& model, const Record& record) {
  impl_->begin(trainer, model);
  const bool is_validated = std::exchange(impl_->is_validated, false);
  const bool all_left_out = record.find("skipped_steps") != nullptr;  // a mean may then be missing
  const bool must_be_there =
      impl_->options.strict && !all_left_out && (is_validated || !has_validation(trainer));
  if (must_be_there || record.find(impl_->monitor.name) != nullptr)
    impl_->take(value_of(record, impl_->monitor.name, kStopping), trainer);
}

void EarlyStopping::save_state(StateDict& state) const {
  state.metadata[kWaited] = std::to_string(impl_->num_waited);
  if (impl_->best) state.metadata[kBestValue] = number_text(*impl_->best);
  if (impl_->latest) state.metadata[kLatestValue] = number_text(*impl_->latest);
}

void EarlyStopping::load_state(const StateDict& state) {
  impl_->best = find_number<double>(state.metadata, kBestValue);
  impl_->latest = find_number<double>(state.metadata, kLatestValue);
  impl_->num_waited = find_number<std::int64_t>(state.metadata, kWaited, {.min = 0}).value_or(0);
  impl_->run.set_loaded();
}

std::vector<std::pair<std::string, std::string>> EarlyStopping::shared_options() const {
  return value_texts(impl_->options);
}

}  // namespace kindling
