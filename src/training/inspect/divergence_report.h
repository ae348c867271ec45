#pragma once

#include <optional>
#include <string>

#include "training/state/batch_source.h"
#include "training/state/training_context.h"

namespace kindling {

// Reports the step that was not finite and, by running it again from its batch, where that came from. The state
// of the run, buffers and random numbers included, stays as it is; gradients are dropped. Each rank runs its own
// part of the step, and all report what was found on which rank.
class DivergenceReport {
 public:
  explicit DivergenceReport(TrainingContext& context) : context_(context), state_(context.state) {}

  // A training begins.
  void start() { step_.reset(); }
  // In the app log, and the batch in options.nonfinite_dir; once per training. `step` tells its first batch.
  // `source` gave the batches of the running epoch; nullptr: nobody knows them any more. Several processes
  // call it at once.
  void report(const RowTag& step, std::int64_t num_batches, const BatchSource* source);
  std::optional<std::int64_t> step() const noexcept { return step_; }

 private:
  struct Replayed {
    std::string found{};  // empty: it was finite this time
    Batch batch{};        // the last one of the step that was looked at
    RowTag step{};        // and its place
  };
  std::string gathered_findings(const RowTag& step, std::int64_t num_batches, const BatchSource& source);
  Replayed replayed(const RowTag& step, std::int64_t num_batches, const BatchSource& source);
  void replay(Replayed& replayed, std::int64_t num_batches, const BatchSource& source);
  // Sentences, each for itself; they throw what the batch's way and the step may throw.
  std::string findings_of(const Batch& batch);
  std::string step_findings(const Batch& batch);
  std::string gradient_finding(Optimizer& optimizer) const;
  bool is_protected() const;
  std::string save(const Replayed& replayed) const;

  TrainingContext& context_;
  TrainState& state_;
  std::optional<std::int64_t> step_;
};

}  // namespace kindling
