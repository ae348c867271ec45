#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kindling/base/export.h"
#include "kindling/training/averaged_weights.h"
#include "kindling/training/callback.h"

namespace kindling {

// An average of a model's weights over its run, kept in addition to the trained weights. It is the base of
// ExponentialMovingAverage, StochasticWeightAveraging and user-defined averages. It starts with the values at
// its first update and adds those of each later update with a weight. It averages all floating-point
// parameters (tied ones once), and buffers if requested. The averages are on the model's device, in the
// parameters' types, but at least float32. An update is one operator: it copies nothing to the host and never
// waits.
//
// With `evaluate`, the validations of a fit (but not its sanity check) use the averages instead of the
// model's own values, from before on_validation_start until after on_validation_end. Checkpoints always
// contain the model's own values, with the averages in the callback's state. A checkpoint whose monitored
// value was measured on averages names their prefix (`averages` in its texts). When a fit has finished or was
// stopped, the averages replace the model's values permanently (apply_at_end); Trainer::state_dict() still
// has its own values then. A run that has diverged or failed keeps the model's own values.
class KINDLING_API WeightAverage : public Callback, public WeightAveraging {
 public:
  static constexpr const char* kPrefix = "average.";  // of the averages' names in the saved state

  ~WeightAverage() override;

  // The number of model states in the average; 0: there is none yet.
  std::int64_t num_averaged() const noexcept;
  // The average's tensors (not copies), under the model's names. Empty: there is none yet.
  StateDict averages() const;
  bool evaluates() const noexcept override;
  // True if the averages are a complete model; false while buffers must still be computed for them.
  bool is_ready() const noexcept;

  void on_fit_start(Trainer& trainer, Module& model) override;
  void on_resume(Trainer& trainer, Module& model) override;
  void on_fit_end(Trainer& trainer, Module& model, const FitResult& result) override;
  void save_state(StateDict& state) const override;
  void load_state(const StateDict& state) override;
  std::string type_name() const override;  // the `place` of the constructor

  // Called by every run, including custom training loops: after each step, before a checkpoint could be
  // saved, and after the training part of an epoch, before its validation.
  void after_step(Trainer& trainer, Module& model) override;
  void after_epoch(Trainer& trainer, Module& model) override;
  // Replaces the averages in a state_dict() of the model by the model's own values while they are applied.
  void put_own_values(StateDict& model_state) const override;
  bool applies_at_end() const noexcept override;
  bool apply(Trainer& trainer) override;
  void restore() override;
  bool is_applied() const noexcept override;
  std::string averages_prefix() const override;
  WeightAveraging* averaging() noexcept final { return this; }

 protected:
  // `place` names it in messages. In one run, at most one average may evaluate, and at most one may be
  // applied at the end (else ConfigError at the start of the run).
  WeightAverage(const char* place, bool evaluate, bool apply_at_end);

  // How buffers are treated. `own`: the model keeps its own; `averaged`: floating-point buffers are averaged;
  // `recomputed`: compute_buffers() computes them before the averages are used.
  enum class Buffers { own, averaged, recomputed };

  // Steps and epochs are numbered from 0.
  virtual bool should_update_after_step(std::int64_t) const { return false; }
  virtual bool should_update_after_epoch(std::int64_t) const { return false; }
  // Returns the weight of the newest values after num_averaged updates: average += weight · (values -
  // average).
  virtual double weight(std::int64_t num_averaged) const = 0;
  virtual Buffers buffers(const Module&) const { return Buffers::own; }
  // Called with the averages applied: computes the model's buffers that belong to them.
  virtual void compute_buffers(Trainer&, Module&) {}
  // A new run starts.
  virtual void reset() {}

  // Starts a run with the trainer if none has started. Events that need the trainer call this first, because
  // custom training loops have no on_fit_start.
  void begin(Trainer& trainer);

 private:
  void require_alone(const Trainer& trainer) const;
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kindling
