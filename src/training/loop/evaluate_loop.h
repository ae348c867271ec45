#pragma once

#include <memory>
#include <optional>

#include "device/float32_products.h"
#include "kindling/nn/evaluation_guard.h"
#include "kindling/training/stop_token.h"
#include "training/state/batch_source.h"
#include "training/state/training_context.h"

namespace kindling {

// While it lives, a model is in evaluation mode, on the trainer's device, and logs into `log`; then it goes
// back to its own modes and to the trainer that it had, which may be in the middle of a fit.
class EvaluationScope {
 public:
  EvaluationScope(Module& model, const std::shared_ptr<TrainingContext>& context, EpochLog& log);
  ~EvaluationScope();
  EvaluationScope(const EvaluationScope&) = delete;
  EvaluationScope& operator=(const EvaluationScope&) = delete;

 private:
  DeterministicOperators::Scope deterministic_;
  Float32Products products_;
  EvaluationGuard evaluation_;
  Module& model_;
  TrainerView former_trainer_;
  const LogScope log_;
  std::optional<PrecisionScope> precision_;  // once the model is where it computes
};

// What is done with every batch.
using EvaluationStep = void (Module::*)(const Batch&);

// One pass over the data inside a scope; the log of its batches is on the host afterwards. False when `stop`
// ended it before (nullptr: nothing does).
bool evaluate_loop(Module& model, EvaluationStep step, BatchSource& source, EpochLog& log,
                   const StopToken* stop);
// The outputs of predict_step for all samples, on the CPU, moved there once.
at::Tensor predict_loop(Module& model, BatchSource& source);

}  // namespace kindling
