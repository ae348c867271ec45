#include <ATen/ops/cat.h>

#include <limits>

#include "kindling/tensors/move.h"
#include "nn/evaluation_guard.h"
#include "training/trainer_impl.h"

namespace kindling {
namespace {

// Sends what a model logs to another log while it lives, and then gives the model back to the trainer that it
// had: that one may be in the middle of a fit.
class LogGuard {
 public:
  LogGuard(Module& model, TrainerState& state, DeviceLog& log)
      : model_(model), trainer_(model.trainer()), state_(state), former_(state.log) {
    log.clear();
    state_.log = &log;
  }
  ~LogGuard() {
    state_.log = former_;
    model_.set_trainer(trainer_);
  }
  LogGuard(const LogGuard&) = delete;
  LogGuard& operator=(const LogGuard&) = delete;

 private:
  Module& model_;
  TrainerView trainer_;
  TrainerState& state_;
  DeviceLog* former_;
};

}  // namespace

Trainer::Impl::Values Trainer::Impl::evaluate(Module& model, DataModule& data, DataLoader& loader,
                                              std::optional<std::int64_t> limit, EvaluationStep step) {
  const EvaluationGuard evaluation(model);
  const LogGuard logging(model, *state_, evaluation_log_);
  attach(model);
  const std::int64_t num_batches = limit.value_or(std::numeric_limits<std::int64_t>::max());
  loader.stage_for(device());
  loader.start_epoch(0);
  Batch batch;
  for (std::int64_t i = 0; i < num_batches && loader.next(batch); ++i) {
    batch = data.on_after_batch_transfer(prepare_batch(std::move(batch)));
    (model.*step)(batch);
    evaluation_log_.write_row(static_cast<double>(batch.num_samples()));
  }
  evaluation_log_.move_to_host();
  return evaluation_log_.means();
}

at::Tensor Trainer::Impl::predict(Module& model, DataModule& data, DataLoader& loader) {
  const EvaluationGuard evaluation(model);
  const LogGuard logging(model, *state_, evaluation_log_);
  attach(model);
  const std::int64_t num_batches =
      options_.limit_predict_batches.value_or(std::numeric_limits<std::int64_t>::max());
  loader.stage_for(device());
  loader.start_epoch(0);
  std::vector<at::Tensor> outputs;
  Batch batch;
  for (std::int64_t i = 0; i < num_batches && loader.next(batch); ++i) {
    batch = data.on_after_batch_transfer(prepare_batch(std::move(batch)));
    outputs.push_back(model.predict_step(batch));
  }
  return move_to(at::cat(outputs), cpu());
}

}  // namespace kindling
