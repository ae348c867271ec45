#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kindling/base/export.h"
#include "kindling/training/averaged_weights.h"
#include "kindling/training/callback.h"

namespace kindling {

// An average of a model's weights over its training, beside the weights that are trained: the base of
// ExponentialMovingAverage and StochasticWeightAveraging, and of averages of one's own. It begins with the
// values at its first update and takes those of each later one with a weight; what is averaged are all
// parameters with a floating-point type (tied ones once), and buffers where it says so. The averages are on
// the model's device, in the parameters' types, but float32 for narrower ones. An update is one operator: it
// makes no copy to the host and no wait.
//
// Where it evaluates, the validations of a training (but not the sanity check of fit) see the averages in
// place of the model's own values, from before on_validation_start until after on_validation_end. What is
// saved are the model's own values always, and the averages in the callback's state: a checkpoint whose
// monitored value was measured on averages says where they are (`averages` in its texts). When a fit has
// finished or was stopped, the model gets the averages for good (apply_at_end); Trainer::state_dict() still
// has its own values then. A training that has diverged or failed keeps the model's own.
class KINDLING_API WeightAverage : public Callback, public WeightAveraging {
 public:
  static constexpr const char* kPrefix = "average.";  // of the averages' names in the saved state

  ~WeightAverage() override;

  // How many states of the model are in the average; 0: there is none yet.
  std::int64_t num_averaged() const noexcept;
  // By the model's names; the average's own tensors. Empty: there is none yet.
  StateDict averages() const;
  bool evaluates() const noexcept override;
  // Whether the averages are a model as they stand; not while buffers are still to be computed for them.
  bool is_ready() const noexcept;

  void on_fit_start(Trainer& trainer, Module& model) override;
  void on_resume(Trainer& trainer, Module& model) override;
  void on_fit_end(Trainer& trainer, Module& model, const FitResult& result) override;
  void save_state(StateDict& state) const override;
  void load_state(const StateDict& state) override;
  std::string type_name() const override;  // the `place` that it was made with

  // What a training calls, of own loops too: after each step, before a checkpoint could be saved behind it,
  // and when an epoch's training has ended, before its validation.
  void after_step(Trainer& trainer, Module& model) override;
  void after_epoch(Trainer& trainer, Module& model) override;
  // Puts the model's own values in a state_dict() of it where the averages are in their place.
  void put_own_values(StateDict& model_state) const override;
  bool applies_at_end() const noexcept override;
  bool apply(Trainer& trainer) override;
  void restore() override;
  bool is_applied() const noexcept override;
  std::string averages_prefix() const override;
  WeightAveraging* averaging() noexcept final { return this; }

 protected:
  // `place` names it in messages. Of the averages of a training one may evaluate, and one be applied at the
  // end (else ConfigError when the training begins).
  WeightAverage(const char* place, bool evaluate, bool apply_at_end);

  // What becomes of the model's buffers. `own`: they stay the model's; `averaged`: those of a floating-point
  // type are averaged; `recomputed`: compute_buffers() finds them before the averages are looked at.
  enum class Buffers { own, averaged, recomputed };

  // Steps and epochs are numbered from 0.
  virtual bool should_update_after_step(std::int64_t) const { return false; }
  virtual bool should_update_after_epoch(std::int64_t) const { return false; }
  // Of the newest values, when so many are in the average: average += weight · (values - average).
  virtual double weight(std::int64_t num_averaged) const = 0;
  virtual Buffers buffers(const Module&) const { return Buffers::own; }
  // The model has the averages; its buffers are to be made those that belong to them.
  virtual void compute_buffers(Trainer&, Module&) {}
  // Another training begins.
  virtual void reset() {}

  // Whoever needs the trainer in a moment of its own calls this first: own loops have no on_fit_start.
  void begin(Trainer& trainer);

 private:
  void require_alone(const Trainer& trainer) const;
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kindling
