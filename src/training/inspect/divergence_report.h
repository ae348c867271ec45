#pragma once

#include <optional>
#include <string>
#include <utility>

#include "training/state/batch_source.h"
#include "training/step/step.h"

namespace kindling {

// Reports the step that was not finite and, by running it again from its batch, where that came from. The
// state of the run, buffers and random numbers included, stays as it is; gradients are dropped. Each rank
// runs its own part of the step, and all report what was found on which rank.
class DivergenceReport {
 public:
  explicit DivergenceReport(const StepContext& context) : context_(context), state_(context.state) {}

  // Call it when a run starts.
  void start() {
    step_.reset();
    reason_.clear();
  }
  // Reports in the app log and saves the batch in options.nonfinite_dir, once per run. `step` identifies the
  // step's first batch. `source` provides the batches of the running epoch; nullptr: they are unknown.
  // Collective.
  void report(const RowTag& step, std::int64_t num_batches, const BatchSource* source);
  // Takes findings about a step without repeating it.
  void note(std::int64_t step, std::string reason) {
    step_ = step;
    reason_ = std::move(reason);
  }
  std::optional<std::int64_t> step() const noexcept { return step_; }
  const std::string& reason() const noexcept { return reason_; }  // empty: nothing has been reported

 private:
  struct Replayed {
    std::string found{};  // empty: the repeated step was finite
    Batch batch{};        // the last batch of the step that was checked
    RowTag step{};        // and its position
  };
  bool ignores_missing() const;  // NaN of a label is no finding
  std::string advice() const;
  std::string gathered_findings(const RowTag& step, std::int64_t num_batches, const BatchSource& source);
  Replayed replayed(const RowTag& step, std::int64_t num_batches, const BatchSource& source);
  void replay(Replayed& replayed, std::int64_t num_batches, const BatchSource& source);
  // Each returns a sentence; they throw whatever the batch's preparation and the step may throw.
  std::string findings_of(const Batch& batch);
  std::string step_findings(const Batch& batch);
  std::string gradient_finding(Optimizer& optimizer) const;
  bool is_protected() const;
  std::string save(const Replayed& replayed) const;

  const StepContext context_;
  TrainState& state_;
  std::optional<std::int64_t> step_;
  std::string reason_;
};

}  // namespace kindling
