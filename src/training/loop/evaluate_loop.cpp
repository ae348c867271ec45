#include "training/loop/evaluate_loop.h"

#include <ATen/ops/cat.h>

#include <utility>

#include "device/libtorch_errors.h"
#include "kindling/tensors/move.h"

namespace kindling {

EvaluationScope::EvaluationScope(Module& model, const std::shared_ptr<TrainingContext>& context,
                                 EpochLog& log)
    : deterministic_(context->deterministic_operators),
      products_(context->options.float32_matmul_precision),
      evaluation_(model),
      former_trainer_(model, model.trainer()),
      log_(context->calls, &log) {
  attach(model, context);
  precision_.emplace(model, context->placement.precision);
}

bool evaluate_loop(Module& model, EvaluationStep step, BatchSource& source, EpochLog& log,
                   const EvaluationHooks& hooks) {
  log.clear();
  source.seek(0);
  Batch batch;
  for (std::int64_t i = 0; source.next(batch); ++i) {
    if (hooks.stop != nullptr && hooks.stop->stop_requested()) return false;
    with_memory_errors("evaluation batch", i + 1, batch.num_samples(), [&] {
      const AutocastScope autocast(source.placement().precision, log.device());
      model.take_loss_weight();  // of a step that has thrown
      (model.*step)(batch);
      model.take_loss_weight();  // of a step that has not logged it
    });
    log.append({.batch = i, .weight = static_cast<double>(batch.num_valid())});
    source.end_batch();
    if (hooks.after_batch) hooks.after_batch(i + 1);
  }
  log.move_to_host();
  return true;
}

at::Tensor predict_loop(Module& model, BatchSource& source) {
  source.keep_order();
  source.seek(0);
  std::vector<at::Tensor> outputs;
  Batch batch;
  while (source.next(batch)) {
    const AutocastScope autocast(source.placement().precision, source.placement().device());
    outputs.push_back(model.predict_step(batch));
  }
  return move_to(at::cat(outputs), cpu());
}

}  // namespace kindling
