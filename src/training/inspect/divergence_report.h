#pragma once

#include <optional>
#include <string>

#include "training/batch_source.h"
#include "training/train_state.h"
#include "training/trainer_info.h"

namespace kindling {

// Tells of the step that was not finite and, by doing it once more from its batch, where that came from. The
// training's state, its buffers and random numbers included, stays as it is; gradients are dropped. Of
// several processes each does its own part of the step, and all tell what was found in which of them.
class DivergenceReport {
 public:
  // All references outlive it.
  DivergenceReport(TrainState& state, TrainerInfo& info, const TrainerOptions& options)
      : state_(state), info_(info), options_(options) {}

  // A training begins.
  void start() { step_.reset(); }
  // In the app log, and the batch in options.nonfinite_dir; once per training. `step` tells its first batch.
  // `source` gave the batches of the running epoch; nullptr: nobody knows them any more. Several processes
  // call it at once.
  void tell(const RowTag& step, std::int64_t num_batches, const BatchSource* source);
  std::optional<std::int64_t> step() const noexcept { return step_; }

 private:
  struct Replayed {
    std::string found{};  // empty: it was finite this time
    Batch batch{};        // the last one of the step that was looked at
    RowTag step{};        // and its place
  };
  std::string told_by_all(const RowTag& step, std::int64_t num_batches, const BatchSource& source);
  Replayed replayed(const RowTag& step, std::int64_t num_batches, const BatchSource& source);
  void replay(Replayed& replayed, std::int64_t num_batches, const BatchSource& source);
  // Sentences, each for itself; they throw what the batch's way and the step may throw.
  std::string findings_of(const Batch& batch);
  std::string step_findings(const Batch& batch);
  std::string gradient_finding(Optimizer& optimizer) const;
  bool is_protected() const;
  std::string save(const Replayed& replayed) const;

  TrainState& state_;
  TrainerInfo& info_;
  const TrainerOptions& options_;
  std::optional<std::int64_t> step_;
};

}  // namespace kindling
