#include "training/loop/fit_loop.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/joined.h"
#include "checkpoint/saved_keys.h"
#include "data/loading/validation_sets.h"
#include "device/libtorch_errors.h"
#include "device/random_state.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/base/number_text.h"
#include "kindling/training/averaged_weights.h"
#include "metrics/global_means.h"
#include "nn/carried_states.h"
#include "nn/monitored_value.h"
#include "tensors/saved_number.h"
#include "training/loop/evaluate_loop.h"
#include "training/parallel/rank_states.h"
#include "training/parallel/replicas.h"
#include "training/step/manual_step.h"
#include "training/step/step_observer.h"

namespace kindling {
namespace {

// Within an epoch the position is a number of batches, which means other samples if the number of batches has
// changed. That may be intended, for example a smaller batch_size after running out of memory.
void warn_of_other_batches(const StateDict& saved, std::int64_t num_batches) {
  const auto found = saved.metadata.find(saved_keys::kNumBatches);
  if (found == saved.metadata.end() || num_batches == 0 || found->second == std::to_string(num_batches))
    return;
  log_warning("the run was saved within an epoch of " + found->second + " batches, but epochs now have " +
              std::to_string(num_batches) + ": this epoch skips or repeats samples");
}

// The optimizer would never update parameters that the first step has registered.
void refuse_late_parameters(const Module& model, std::size_t num_parameters) {
  const auto parameters = model.named_parameters();
  if (parameters.size() == num_parameters) return;
  throw Error({.place = model.name() + "::training_step",
               .found = "the first step has registered " +
                        counted(parameters.size() - num_parameters, "parameter") + ", such as '" +
                        parameters[parameters.size() - 1].key() + "'; the optimizer does not have them",
               .wanted = "all parameters before the first step",
               .remedy =
                   "register them in the constructor, or use layers that determine their size themselves "
                   "(LazyLinear)"});
}

}  // namespace

FitLoop::FitLoop(std::shared_ptr<TrainingContext> context)
    : context_(std::move(context)),
      state_(context_->state),
      report_(state_, context_->options.loggers, context_->options.log_every_n_steps, context_->clock,
              context_->group()),
      divergence_(StepContext(*context_)),
      evaluation_log_(context_->device()) {}

void FitLoop::start(std::unique_ptr<Step> step) {
  step_ = std::move(step);
  latest_ = {};
  must_go_back_ = false;
  used_ = {};
  log_.emplace(context_->calls, &state_.log);
  report_.start();
  divergence_.start();
}

void FitLoop::set_data(BatchSource train, std::vector<ValidationSource> validation) {
  train_.emplace(std::move(train));
  validation_ = std::move(validation);
  state_.num_train_batches = train_->num_batches();
}

void FitLoop::drop_data() {
  train_.reset();
  validation_.clear();
  state_.num_train_batches = 0;
}

// --- The run ---

Metrics FitLoop::run() {
  Metrics latest;
  vote_on_stop();
  while (!must_go_back_ && (!is_done() || is_left_open())) {
    auto metrics = fit_epoch();
    if (metrics) latest = std::move(*metrics);
  }
  return latest;
}

bool FitLoop::has_all_steps() const {
  const auto& max_steps = context_->options.max_steps;
  return max_steps && state_.progress.global_step >= *max_steps;
}

bool FitLoop::must_stop() {
  const TrainerOptions& options = context_->options;
  if (state_.time.is_over()) context_->stop.request_stop(FitReason::time);
  const bool is_long_enough =
      state_.progress.epoch >= options.min_epochs && state_.progress.global_step >= options.min_steps;
  if (is_long_enough && context_->stop.is_early_stop_requested()) {
    state_.is_early_stop_pending = false;
    context_->stop.stop_early();
  }
  return context_->stop.stop_requested() || has_all_steps();
}

// After the callbacks of a validation or an epoch, which all ranks reach together: what they request takes
// effect before the next step, as in a single process.
void FitLoop::vote_on_stop() {
  if (state_.time.is_over()) context_->stop.request_stop(FitReason::time);
  context_->stop.vote_now();
}

bool FitLoop::is_done() {
  const auto& max_epochs = context_->options.max_epochs;
  return must_stop() || (max_epochs && state_.progress.epoch >= *max_epochs);
}

// True if max_steps were reached and saved, but their epoch has not been closed.
bool FitLoop::is_left_open() const {
  const Progress& at = state_.progress;
  const auto& max_epochs = context_->options.max_epochs;
  return at.batch > 0 && !context_->stop.stop_requested() && (!max_epochs || at.epoch < *max_epochs);
}

// --- An epoch ---

std::optional<Metrics> FitLoop::fit_epoch() {
  if (has_batches_left()) return fit_epoch(Batches::left);
  report_.begin(nullptr);
  return fit_epoch(Batches::done);
}

Metrics FitLoop::finish_epoch() { return fit_epoch(Batches::done).value_or(Metrics{}); }

std::optional<Metrics> FitLoop::fit_epoch(Batches batches) {
  if (batches == Batches::left) {
    begin_epoch();
    for (Batch batch; next_batch(batch);) train_batch(batch);
  }
  end_open_window();
  step_->end_epoch();
  Module& model = *state_.model;
  if (context_->group() != nullptr) verify_replicas(*context_->group(), model, state_.progress.global_step);
  must_go_back_ = find_spike();
  if (must_go_back_) return std::nullopt;
  if (train_ && context_->stop.stop_requested()) return leave_open();
  context_->callbacks.average_after_epoch(model);
  report_.copy_log_to_host();  // the one host wait of an epoch
  state_.progress.phase = Phase::validation;
  std::optional<NamedValues> validation(std::in_place);
  if (validates_in_this_epoch())
    validation = validate(/*at=*/1);
  else
    draw_training();
  auto metrics = validation ? std::optional(close_epoch(*validation)) : leave_open();
  vote_on_stop();
  return metrics;
}

bool FitLoop::has_batches_left() const {
  const Progress& at = state_.progress;
  return at.phase == Phase::training || (at.batch < train_->num_batches() && !has_all_steps());
}

std::int64_t FitLoop::num_samples_used() const {
  return train_ ? used_.samples + train_->num_samples_in(state_.progress.batch - used_.batch) : 0;
}

void FitLoop::begin_epoch() {
  Module& model = *state_.model;
  const Progress& at = state_.progress;
  report_.begin(train_ ? &*train_ : nullptr);
  model.train();  // before the callbacks, which may freeze a layer
  {
    std::optional<RandomStateGuard> of_the_epoch;  // the stopped epoch has had this event before
    if (at.batch > 0) of_the_epoch.emplace(context_->device());
    context_->callbacks.call(&Callback::on_train_epoch_start, model);
  }
  train_->begin_at(used_.samples - train_->num_samples_in(used_.batch));
  train_->seek(at.epoch, at.batch);
}

// A stop waits for the end of an accumulation window.
bool FitLoop::next_batch(Batch& batch) {
  do {
    if (latest_.updated && (must_stop() || has_met_spike() || !validate_between() || must_stop()))
      return false;
  } while (latest_.updated && passes_over());
  const ActivityScope scope(&context_->clock, Activity::data);
  return train_->next(batch);
}

void FitLoop::train_batch(const Batch& batch) {
  Module& model = *state_.model;
  if (!model.is_training()) model.train();  // a custom loop may have used it for acting
  if (!log_) log_.emplace(context_->calls, &state_.log);
  StateTransaction transaction(state_);
  state_.progress.phase =
      Phase::training;  // again, where a custom loop continues after a validation has thrown
  state_.random_before_validation.clear();
  if (!train_) state_.has_custom_batches = true;
  StepObserver* const observer =
      context_->observer != nullptr && context_->observer->is_watching() ? context_->observer : nullptr;
  if (observer != nullptr) observer->before_batch(batch, train_ ? train_->indices() : at::Tensor());
  latest_ = run_step(batch);
  ++state_.progress.batch;
  report_.after_batch(latest_.num_samples);
  if (latest_.updated) {
    after_update();
    if (is_validation_due()) state_.progress.phase = Phase::validation;
  }
  if (observer != nullptr) observer->after_batch(latest_.updated);
  transaction.commit();
  if (latest_.updated && context_->stop.take_save_request()) context_->callbacks.notify_save_request();
  context_->callbacks.call(&Callback::on_train_batch_end, model);
}

// If a step throws, drops what it has logged, and its window starts again.
StepOutcome FitLoop::run_step(const Batch& batch) {
  const std::int64_t index = std::exchange(latest_, {}).accumulated_batches;
  const bool is_last = index + 1 == batches_per_step(context_->options) ||
                       (train_ && state_.progress.batch + 1 == train_->num_batches());
  try {
    return with_memory_errors("training step", state_.progress.global_step + 1, batch.num_samples(), [&] {
      if (!state_.needs_optimizer()) {
        const StepOutcome outcome = step_->run(batch, {.index = index, .is_last = is_last});
        if (train_) train_->end_batch();
        return outcome;
      }
      create_optimizer(StepContext(*context_), batch);
      const std::size_t num_parameters = state_.model->parameters().size();
      const StepOutcome outcome = step_->run(batch, {.index = index, .is_last = is_last});
      refuse_late_parameters(*state_.model, num_parameters);
      if (train_) train_->end_batch();
      return outcome;
    });
  } catch (...) {
    state_.log.drop_marks();
    throw;
  }
}

void FitLoop::after_update() {
  ++state_.progress.global_step;
  {
    const ActivityScope scope(&context_->clock, Activity::update);
    context_->callbacks.average_after_step(*state_.model);
  }
  report_.after_step();
  if (!report_.has_met_divergence()) return;
  // Rows arrive on the host at different times on each rank, so a rank only votes.
  if (context_->group() != nullptr)
    context_->stop.request_stop(FitReason::diverged);
  else
    stop_if_diverged();
}

// A custom loop may end within an accumulation window.
void FitLoop::end_open_window() {
  if (std::exchange(latest_, {}).updated) return;
  StateTransaction transaction(state_);
  step_->end_window();
  after_update();
  transaction.commit();
}

// Collective: all ranks call it together, with the whole log on the host.
void FitLoop::stop_if_diverged() {
  const bool is_reported = divergence_.step().has_value();
  const auto step = report_.first_diverged();
  if (step && !is_after_spike(*step)) {
    // Again after a reset(), because steps no longer change anything.
    context_->stop.request_stop(FitReason::diverged);
    if (!is_reported) divergence_.report(step->first, step->num_batches, report_.source());
  }
}

// Reports the part of an epoch that ran before a stop; a resumed run continues it.
std::optional<Metrics> FitLoop::leave_open() {
  report_.report_all();
  stop_if_diverged();
  return std::nullopt;
}

// The progress advances before callbacks are called, so that what they save does not repeat the epoch.
Metrics FitLoop::close_epoch(const NamedValues& validation) {
  Module& model = *state_.model;
  stop_if_diverged();
  warn_unused_optimizers(state_);
  const std::set<std::int64_t> spikes = report_.spike_steps();  // while the log has them
  Record record = report_.close(validation);
  StateTransaction transaction(state_);  // the log is empty and the record not yet reported
  warn_of_steps(record, spikes, context_->options.on_spike);
  Progress& at = state_.progress;
  forget_carried_states(model, /*at_epoch_end=*/true);
  used_ = {.samples = num_samples_used()};
  at = {.epoch = at.epoch + 1, .batch = 0, .global_step = at.global_step, .phase = Phase::training};
  context_->callbacks.call(&Callback::on_epoch_record, model, record);
  report_.write(record);
  update_plateau(record, !validation.empty());
  transaction.commit();
  const Record& finished = record;
  context_->callbacks.call(&Callback::on_epoch_end, model, finished);
  report_.begin(nullptr);
  return Metrics(record.values.begin(), record.values.end());
}

// Shows the schedule the value that it watches, unless this epoch has skipped the validation that may have
// it.
void FitLoop::update_plateau(const Record& record, bool has_validated) {
  if (!state_.plateaus) return;
  const std::string& name = state_.plateaus->options().monitor;
  const bool has_skipped_it = num_validation_batches() > 0 && !has_validated;
  if (record.find(name) == nullptr && (has_skipped_it || record.find("skipped_steps"))) return;
  state_.plateaus->observe(value_of(record, name, "plateau schedule"));
}

// --- Validation ---

bool FitLoop::validates_in_this_epoch() const {
  return num_validation_batches() > 0 &&
         (state_.progress.epoch + 1) % context_->options.check_val_every_n_epoch == 0;
}

std::int64_t FitLoop::num_validation_batches() const noexcept {
  std::int64_t sum = 0;
  for (const ValidationSource& set : validation_) sum += set.batches.num_batches();
  return sum;
}

void FitLoop::draw_training() const {
  report_.draw(state_.log, Module::Stage::train, state_.num_train_batches);
}

std::optional<NamedValues> FitLoop::validate(double at) {
  const ActivityScope activity(&context_->clock, Activity::validation);
  Module& model = *state_.model;
  const Callbacks& callbacks = context_->callbacks;
  state_.random_before_validation = random_state(context_->device());
  const AveragedWeights averaged(callbacks.trainer(), callbacks.evaluated_average());
  const EvaluationScope scope(model, context_, evaluation_log_);
  callbacks.call(&Callback::on_validation_start, model);
  std::optional<NamedValues> values(std::in_place);
  const std::int64_t num_batches = num_validation_batches();
  std::int64_t num_done = 0;
  for (auto& [suffix, batches] : validation_) {
    const CarriedStatesAside hidden_states(model);  // no set continues another
    const auto after_batch = [&, before = num_done](std::int64_t batch) {
      num_done = before + batch;
      callbacks.call(&Callback::on_validation_batch_end, model, num_done, num_batches);
    };
    const bool is_complete = evaluate_loop(model, &Module::validation_step, batches, evaluation_log_,
                                           {.stop = context_->stop.immediate(), .after_batch = after_batch});
    if (!is_complete) {
      values.reset();
      break;
    }
    for (const auto& [name, value] : global_means(evaluation_log_, context_->group()))
      values->emplace_back(suffix.empty() ? name : name_in_set(report_.validation_name(name), suffix), value);
    if (!suffix.empty()) continue;
    if (at == 1) draw_training();
    report_.draw(evaluation_log_, Module::Stage::val, evaluation_log_.num_rows(), at);
  }
  callbacks.call(&Callback::on_validation_end, model);
  // A validation that is repeated, and one between two steps, takes no random numbers from the training.
  if (!values || at < 1) set_random_state(context_->device(), state_.random_before_validation);
  state_.random_before_validation.clear();
  return values;
}

// Returns how many intervals are over after so many batches. A count is of batches before they are split into
// shards, so it does not depend on the number of ranks. A fraction that is meant to give a whole number may
// miss it by a last bit.
double FitLoop::num_intervals(std::int64_t batches) const {
  const CountOrFraction& interval = context_->options.val_check_interval;
  const auto unit =
      static_cast<double>(interval.is_fraction() ? train_->num_batches() : train_->num_shards_per_batch());
  return std::floor(static_cast<double>(batches) / (interval.number() * unit) + 1e-9);
}

// After a step: its batches have passed a multiple of val_check_interval.
bool FitLoop::is_validation_due() const {
  if (!train_ || has_all_steps() || !validates_in_this_epoch()) return false;
  const std::int64_t batches = train_->num_batches(), done = state_.progress.batch,
                     before = std::max<std::int64_t>(done - batches_per_step(context_->options), 0);
  return done < batches && num_intervals(done) > num_intervals(before);
}

bool FitLoop::validate_between() {
  Progress& at = state_.progress;
  if (at.phase == Phase::training) return true;
  const double start = report_.seconds();
  report_.report_pending();  // in the order of the steps
  const auto values = validate(static_cast<double>(at.batch) / static_cast<double>(train_->num_batches()));
  if (!values) return false;
  const Record record = report_.validation_record(*values);
  at.phase = Phase::training;
  StateTransaction transaction(state_);  // the record is not yet reported
  report_.write(record);
  transaction.commit();
  context_->callbacks.call(&Callback::on_validation_record, *state_.model, record);
  vote_on_stop();
  report_.leave_out(report_.seconds() - start);
  return true;
}

void FitLoop::sanity_check(std::vector<ValidationSource> validation) {
  Module& model = *state_.model;
  const EvaluationScope scope(model, context_, evaluation_log_);
  context_->callbacks.call(&Callback::on_validation_start, model);
  // Runs to its end even after a stop, because a resumed run starts with the random state after it.
  for (ValidationSource& set : validation) {
    const CarriedStatesAside hidden_states(model);
    evaluate_loop(model, &Module::validation_step, set.batches, evaluation_log_);
  }
  context_->callbacks.call(&Callback::on_validation_end, model);
}

// --- Saving and resuming ---

void FitLoop::require_closed_window() const {
  if (latest_.updated) return;
  throw InsideStep({.place = "the run",
                    .found = "an accumulation window is open: the next step has the gradients of " +
                             std::to_string(latest_.accumulated_batches) + " batches so far",
                    .wanted = "a save between two steps",
                    .remedy = "save when progress().accumulated_batches is 0"});
}

StateDict FitLoop::save_point() {
  StateDict state;
  call_on_all(context_->group(), "save the state", [&] {  // a callback or a logger may fail on one rank alone
    state_.require_between_steps();
    require_closed_window();
    if (context_->stop.is_early_stop_requested()) state_.is_early_stop_pending = true;  // by another rank
    state_.save(state);
    if (train_ && train_->is_endless())
      state.metadata[saved_keys::kNumSamples] = std::to_string(num_samples_used());
    else if (state_.progress.batch > 0 && state_.num_train_batches > 0)
      state.metadata[saved_keys::kNumBatches] = std::to_string(state_.num_train_batches);
    if (const std::string order = train_ ? train_->order_fingerprint(state_.progress) : ""; !order.empty())
      state.metadata[saved_keys::kOrder] = order;
    report_.report_all();
  });
  stop_if_diverged();  // on all ranks
  if (divergence_.step())
    throw CheckpointError({.place = "the run",
                           .found = "it diverged at step " + std::to_string(*divergence_.step()),
                           .wanted = "finite weights to save",
                           .remedy = "resume from an earlier checkpoint"});
  if (context_->group() != nullptr) state = gather_state(state, *context_->group());
  return state;
}

void FitLoop::resume(const StateDict& saved) {
  if (state_.log.num_rows() > 0) {
    state_.log.move_to_host();
    stop_if_diverged();
  }
  // The step's guard would skip all updates of the loaded state, too.
  if (divergence_.step())
    throw Error({.place = "Trainer::load_state_dict",
                 .found = "the run diverged at step " + std::to_string(*divergence_.step()),
                 .wanted = "a run that prepare_model() has just started",
                 .remedy = "call prepare_model(model) again, then load the state"});
  ProcessGroup* const group = context_->group();
  latest_ = {};
  state_.load(own_state(saved, group));
  context_->stop.set_early_stop_requested(state_.is_early_stop_pending);
  used_ = {
      .samples = find_number<std::int64_t>(saved.metadata, saved_keys::kNumSamples, {.min = 0}).value_or(0),
      .batch = state_.progress.batch};
  const auto order = saved.metadata.find(saved_keys::kOrder);
  if (train_ && order != saved.metadata.end()) {
    train_->expect_order(state_.progress.epoch, order->second);
    train_->seek(state_.progress.epoch, state_.progress.batch);  // throws before anything is taken back
  }
  warn_of_other_batches(saved, state_.num_train_batches);
  if (!has_own_state(saved, group)) fork_rng(context_->device(), group->rank());
  const RandomStateGuard random_state(context_->device());  // against what is drawn here
  // Later checkpoints are removed first: they depend on what the loggers now take back.
  context_->callbacks.call(&Callback::on_resume, *state_.model);
  report_.resume();
}

void FitLoop::abandon_steps() {
  if (step_) step_->end_epoch();
}

}  // namespace kindling
