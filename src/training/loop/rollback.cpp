// The parts of FitLoop and Trainer::Impl that take a run back after a spike.
#include <string>
#include <utility>

#include "checkpoint/saved_keys.h"
#include "kindling/base/log.h"
#include "kindling/base/number_text.h"
#include "kindling/tensors/checkpoint_file.h"
#include "tensors/saved_number.h"
#include "training/loop/trainer_impl.h"

namespace kindling {
namespace {

constexpr std::size_t kMostRollbacks = 3;  // to the same checkpoint

std::int64_t step_in(const StateDict& saved) {
  return number_of<std::int64_t>(saved.metadata, saved_keys::kGlobalStep, {.min = 0});
}

std::string place_of(const std::filesystem::path& checkpoint) {
  return checkpoint.empty() ? "its start" : checkpoint.filename().string();
}

}  // namespace

// --- The loop ---

bool FitLoop::is_after_spike(const EpochReport::StepRows& step) {
  if (!rolls_back(context_->options)) return false;
  const auto spike = report_.first_spike();
  return spike && spike->first.global_step < step.first.global_step;
}

// On the CPU all ranks find the same step at once. On GPUs, rows arrive on each rank at another time, so
// several ranks look for a spike only where all of them wait for the whole log.
bool FitLoop::has_met_spike() {
  if (!rolls_back(context_->options)) return false;
  if (state_.progress.phase == Phase::validation) return find_spike();
  if (context_->group() != nullptr && !context_->device().is_cpu()) return false;
  return is_first_spike();
}

bool FitLoop::find_spike() {
  if (!rolls_back(context_->options)) return false;
  state_.log.move_to_host();
  return is_first_spike();
}

// The updates after a step that was not finite are left out, and their losses mean nothing.
bool FitLoop::is_first_spike() {
  const auto spike = report_.first_spike();
  const auto diverged = spike ? report_.first_diverged() : std::nullopt;
  return spike && (!diverged || is_after_spike(*diverged));
}

void FitLoop::give_up(std::int64_t step, std::string reason) {
  log_error("the run has diverged: " + reason);
  divergence_.note(step, std::move(reason));
  context_->stop.request_stop(FitReason::diverged);
  context_->stop.vote_now();
}

// The batches of the next step, if the run has gone back because of them.
bool FitLoop::passes_over() {
  Progress& at = state_.progress;
  const std::int64_t count = train_ ? state_.passed.count_at(at.epoch, at.batch) : 0;
  if (count == 0) return false;
  at.batch += count;
  train_->seek(at.epoch, at.batch);
  if (is_validation_due()) at.phase = Phase::validation;
  return true;
}

// --- The trainer ---

// Rank 0 writes the checkpoints, and the others may not see the latest one yet when they look.
std::filesystem::path Trainer::Impl::latest_checkpoint() const {
  std::filesystem::path latest;
  for (const auto& callback : context->callbacks.savers())
    if (latest.empty()) latest = callback->saver()->latest();
  if (group() != nullptr) latest = group()->all_gather(latest.string()).front();
  return latest;
}

Metrics Trainer::Impl::run_with_rollbacks(const std::filesystem::path& resumed) {
  StateDict start;  // of a run that has no checkpoint yet
  if (resumed.empty()) start = copy_to(loop.save_point(), cpu());
  Metrics latest;
  for (bool is_running = true; is_running;) {
    Metrics metrics = loop.run();
    if (!metrics.empty()) latest = std::move(metrics);
    const auto spike = loop.spike();
    is_running = spike.has_value();
    if (!spike) break;
    std::filesystem::path checkpoint = latest_checkpoint();
    if (checkpoint.empty()) checkpoint = resumed;
    is_running =
        go_back(*spike, checkpoint, checkpoint.empty() ? copy_to(start, cpu()) : load_checkpoint(checkpoint));
  }
  return latest;
}

// Starts the run again in this process, as a resume in another one would.
bool Trainer::Impl::go_back(const EpochReport::StepRows& spike, const std::filesystem::path& checkpoint,
                            const StateDict& saved) {
  TrainState& state = context->state;
  const std::int64_t step = spike.first.global_step, steps_before = step_in(saved);
  const BatchRange range{
      .epoch = state.progress.epoch, .batch = spike.first.batch, .count = spike.num_batches};
  PassedBatches passed = state.passed;
  const std::size_t num_rollbacks = passed.num_steps() - PassedBatches::load(saved).num_steps();
  const std::string met = "the loss of step " + std::to_string(step) + " had a spike";
  if (num_rollbacks >= kMostRollbacks) {
    loop.give_up(step, met + ", after the run had gone back to " + place_of(checkpoint) + " " +
                           std::to_string(num_rollbacks) + " times because of others");
    return false;
  }
  if (passed.count_in(range.epoch) + range.count >= state.num_train_batches) {
    loop.give_up(step, met + ", and its epoch has no other batch");
    return false;
  }
  passed.add(range);
  log_warning(met + ", more than " + number_text(context->options.on_spike->factor) +
              " spreads above the median of the latest losses; the run goes back to " + place_of(checkpoint) +
              " (step " + std::to_string(steps_before) + ") and passes over " +
              (range.count == 1 ? "batch " + std::to_string(range.batch)
                                : "batches " + std::to_string(range.batch) + " to " +
                                      std::to_string(range.batch + range.count - 1)) +
              " of epoch " + std::to_string(range.epoch + 1));
  const double spent_s = state.time.spent_s();
  if (context->stop.reason() == FitReason::diverged) context->stop.reset();  // after the spike
  state.start(state.model);
  state.adopt_run_id(saved);
  loop.start(make_step(*context));
  loop.resume(saved);
  state.passed = std::move(passed);
  state.time.start(spent_s);
  const Rollback rollback{.spike_step = step, .global_step = steps_before, .passed = range};
  context->callbacks.call(&Callback::on_rollback, *state.model, rollback);
  return true;
}

}  // namespace kindling
