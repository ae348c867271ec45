#include "kindling/training/step_times.h"

#include <ATen/DeviceAccelerator.h>

#include <chrono>
#include <ctime>
#include <optional>
#include <utility>

#include "device/libtorch_errors.h"
#include "kindling/base/error.h"
#include "kindling/training/callback.h"
#include "kindling/training/trainer.h"
#include "training/loop/trainer_impl.h"
#include "training/tuner/trial_fit.h"

namespace kindling {
// Not in the anonymous namespace, because a class with external linkage has a member of this type.
struct StepInstant {
  std::chrono::steady_clock::time_point wall{};
  double cpu_seconds = 0;
};

namespace {

// Returns the time after the device has finished the queued work.
StepInstant now_on(Device device) {
  if (!device.is_cpu()) at::accelerator::synchronizeDevice(device.index());
  timespec cpu{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
  return {std::chrono::steady_clock::now(),
          static_cast<double>(cpu.tv_sec) + 1e-9 * static_cast<double>(cpu.tv_nsec)};
}

NamedValues last_row_of(EpochLog& log) {
  log.move_to_host();
  NamedValues values;
  for (std::size_t column = 0; column < log.columns().size(); ++column)
    if (const auto value = log.value(log.num_rows() - 1, column);
        value && log.columns()[column].kind != EpochLog::Kind::internal)
      values.emplace_back(log.columns()[column].name, *value);
  return values;
}

void require_steps(const StepTimesOptions& options) {
  if (options.warm_up_steps >= 1 && options.steps >= 1) return;
  throw ConfigError({.place = "measure_steps",
                     .found = std::to_string(options.steps) + " steps after " +
                              std::to_string(options.warm_up_steps) + " warm-up steps",
                     .wanted = "at least 1 of each"});
}

}  // namespace

// Measures a trainer's steps.
class StepWatch : public Callback {
 public:
  explicit StepWatch(const StepTimesOptions& options) : options_(options) {}

  void on_fit_start(Trainer& trainer, Module&) override { trainer.impl_->context->clock.start(); }

  void on_train_batch_end(Trainer& trainer, Module&) override {
    Trainer::Impl& training = *trainer.impl_;
    if (training.loop.accumulated_batches() > 0) return;
    const std::int64_t step = training.context->state.progress.global_step;
    if (step == options_.warm_up_steps) {
      start_ = now_on(trainer.device());
      clock_start_ = training.context->clock.spent();
    } else if (step == options_.warm_up_steps + options_.steps) {
      finish(training);
    }
  }

  const std::optional<StepTimes>& times() const noexcept { return times_; }

 private:
  void finish(Trainer::Impl& training) {
    const auto shares = training.context->clock.fractions_since(clock_start_);
    const auto share = [&](Activity part) { return shares[static_cast<std::size_t>(part)]; };
    const StepInstant end = now_on(training.context->device());
    const auto steps = static_cast<double>(options_.steps);
    times_ = {.seconds = std::chrono::duration<double>(end.wall - start_.wall).count() / steps,
              .cpu_seconds = (end.cpu_seconds - start_.cpu_seconds) / steps,
              .data = share(Activity::data),
              .forward_backward = share(Activity::forward) + share(Activity::backward),
              .update = share(Activity::update),
              .log = share(Activity::log),
              .rest = share(Activity::other) + share(Activity::validation),
              .why_not_recorded = training.context->capture.reason,
              .last_step = last_row_of(training.context->state.log)};
  }

  StepTimesOptions options_;
  StepInstant start_;
  EpochClock::Times clock_start_{};
  std::optional<StepTimes> times_;
};

StepTimes measure_steps(const TrainerOptions& trainer, const std::shared_ptr<Module>& model, DataModule& data,
                        const StepTimesOptions& options) {
  return with_libtorch_errors("measure_steps", [&] {
    require_steps(options);
    const auto watch = std::make_shared<StepWatch>(options);
    TrainerOptions trial = trial_options(trainer, options.warm_up_steps + options.steps);
    trial.on_nonfinite = trainer.on_nonfinite;  // the checks are part of a step
    trial.on_spike = trainer.on_spike;
    trial.log_every_n_steps = trainer.log_every_n_steps;
    trial.profile = false;
    trial.callbacks = {watch};
    const TrialScope scope(*model, trial_device(trial));
    const FitResult result = Trainer(trial).fit(model, data);
    if (!watch->times())
      throw Error({.place = "measure_steps",
                   .found = "the run ended after " + std::to_string(result.progress.global_step) + " steps" +
                            (result.diverged_step ? " because it diverged" : ""),
                   .wanted = std::to_string(trial.max_steps.value()) + " steps"});
    return *watch->times();
  });
}

}  // namespace kindling
