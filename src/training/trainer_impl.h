#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kindling/device/transfer_counts.h"
#include "kindling/training/trainer.h"
#include "training/step.h"
#include "training/step_reporter.h"

namespace kindling {

// What stands behind a Trainer: its parts, and the loops over them (train_loop.cpp, evaluate_loop.cpp).
class Trainer::Impl {
 public:
  using Values = std::vector<std::pair<std::string, double>>;
  using EvaluationStep = void (Module::*)(const Batch&);

  Impl(Trainer& owner, TrainerOptions options);

  FitResult fit(std::shared_ptr<Module> model, DataModule& data);
  Values evaluate(Module& model, DataModule& data, DataLoader& loader, std::optional<std::int64_t> limit,
                  EvaluationStep step);
  at::Tensor predict(Module& model, DataModule& data, DataLoader& loader);

  // Gives the model its trainer and moves it, without starting an optimizer.
  void attach(Module& model);
  void prepare_data(DataModule& data);
  void prepare_model(std::shared_ptr<Module> model);
  Metrics fit_epoch();
  Batch prepare_batch(Batch batch) const;
  void train_step(const Batch& batch);
  void log(std::string_view name, const at::Tensor& value);
  Values finish_epoch();
  Metrics finish_own_epoch();
  TrainerProgress progress() const;
  Values preview();

  const TrainerOptions& options() const noexcept { return options_; }
  const std::vector<Device>& gpus() const noexcept { return state_->gpus; }
  Device device() const noexcept { return gpus().empty() ? cpu() : gpus().front(); }
  const StopToken& stop() const noexcept { return stop_; }
  double lr() const noexcept { return step_ ? step_->lr() : 0; }

 private:
  using Clock = std::chrono::steady_clock;

  // Leaves nothing of a fit behind, however it ends: a stop request holds for one fit, data is borrowed for
  // one.
  struct FitEnd {
    Impl& impl;
    ~FitEnd();
  };

  void begin_epoch();
  void train_epoch();
  Record close_epoch();
  void sanity_check();
  bool fetch(Batch& batch);
  std::int64_t schedule_index(std::int64_t global_step) const;
  bool must_stop() const;
  bool is_done() const;
  template <class Call>
  void for_each_callback(const Call& call) {
    for (const auto& callback : options_.callbacks) call(*callback);
  }

  Trainer& owner_;
  TrainerOptions options_;
  std::shared_ptr<TrainerState> state_;  // models hold it weakly
  StopToken stop_;
  DeviceLog train_log_, evaluation_log_;
  StepReporter reporter_;
  DataModule* data_ = nullptr;  // prepared
  std::shared_ptr<DataLoader> train_loader_, val_loader_;
  std::optional<Step> step_;          // of the prepared model
  std::int64_t schedule_length_ = 0;  // of the run in its unit, 0 when unknown

  // Of the epoch that is running.
  Clock::time_point epoch_start_ = Clock::now();
  double data_wait_seconds_ = 0;
  std::int64_t num_samples_ = 0;
  std::int64_t steps_before_epoch_ = 0;
  TransferCounts counts_before_epoch_;
  Clock::time_point last_preview_;
};

}  // namespace kindling
