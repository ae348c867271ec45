#pragma once

#include <c10/util/Exception.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "device/float32_products.h"
#include "kindling/nn/evaluation_guard.h"
#include "kindling/training/stop_token.h"
#include "nn/scoped_model_state.h"
#include "tensors/shape_text.h"
#include "training/state/batch_source.h"
#include "training/state/training_context.h"

namespace kindling {

// While it exists, a model is in evaluation mode, on the trainer's device, and logs into `log`. The
// destructor restores the model's modes and its former trainer, which may be in the middle of a fit.
class EvaluationScope {
 public:
  EvaluationScope(Module& model, const std::shared_ptr<TrainingContext>& context, EpochLog& log);
  EvaluationScope(const EvaluationScope&) = delete;
  EvaluationScope& operator=(const EvaluationScope&) = delete;

 private:
  DeterministicOperators::Scope deterministic_;
  Float32Products products_;
  EvaluationGuard evaluation_;
  const ScopedTrainer former_trainer_;
  const LogScope log_;
  std::optional<PrecisionScope> precision_;  // set once the model is on its device
};

// The function to call for every batch.
using EvaluationStep = void (Module::*)(const Batch&);

struct EvaluationHooks {
  const StopToken* stop = nullptr;                     // ends the loop early
  std::function<void(std::int64_t)> after_batch = {};  // gets the number of batches done
};

// Makes one pass over the data within a scope; afterwards the log of its batches is on the host. Returns
// false if a stop ended it early.
bool evaluate_loop(Module& model, EvaluationStep step, BatchSource& source, EpochLog& log,
                   const EvaluationHooks& hooks = {});
// Calls work on a batch. Errors of LibTorch then say what it was given: "with a batch of Float [4, 1]".
template <class Call>
auto with_batch_in_errors(const Batch& batch, const Call& call) {
  try {
    return call();
  } catch (c10::Error& error) {
    const auto text = [](const at::Tensor& tensor) { return type_text(tensor); };
    error.add_context("with a batch of " + joined(batch.tensors(), ", ", text));
    throw;
  }
}
// Returns the outputs of predict_step() for all samples on the CPU, copied there once.
at::Tensor predict_loop(Module& model, BatchSource& source);

}  // namespace kindling
