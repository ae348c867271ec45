// What a trainer does with a model beside training it.
#include "device/random_state.h"
#include "kindling/tensors/move.h"
#include "metrics/means_of_all.h"
#include "training/trainer_impl.h"

namespace kindling {

Metrics Trainer::Impl::evaluate(Module& model, BatchSource source, EvaluationStep step) {
  const EvaluationScope scope(model, info, evaluation_log);
  if (group() != nullptr) source.shard(group()->rank(), group()->size());
  evaluate_loop(model, step, source, evaluation_log, /*stop=*/nullptr);
  const NamedValues means = means_of_all(evaluation_log, group());
  return Metrics(means.begin(), means.end());
}

at::Tensor Trainer::Impl::predict(Module& model, BatchSource source) {
  const EvaluationScope scope(model, info, evaluation_log);
  return predict_loop(model, source);
}

void Trainer::Impl::predict(Module& model, BatchSource source,
                            const std::function<void(const Prediction&)>& take) {
  const EvaluationScope scope(model, info, evaluation_log);
  source.seek(0);
  for (Batch batch; source.next(batch);) {
    const AutocastScope autocast(info->precision, info->device());
    take({.outputs = move_to(model.predict_outputs(batch), cpu()),
          .batch = batch,
          .indices = source.indices()});
  }
}

std::vector<LayerRow> Trainer::Impl::layer_summary(Module& model, DataModule& of) {
  const EvaluationScope scope(model, info, evaluation_log);
  Batch batch;
  {
    const RandomStateGuard random_state(info->device());
    BatchSource source =
        source_of(of, {"Trainer::layer_summary", "train_dataloader", &DataModule::train_dataloader}, 1);
    source.seek(0);
    source.next(batch);
  }
  return kindling::layer_summary(model, batch);
}

}  // namespace kindling
