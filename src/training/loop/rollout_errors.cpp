#include <ATen/core/Tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <string>
#include <utility>

#include "device/random_state.h"
#include "kindling/base/error.h"
#include "kindling/tensors/move.h"
#include "kindling/training/rollout_validation.h"
#include "nn/carried_states.h"
#include "tensors/shape_text.h"
#include "training/loop/trainer_impl.h"

namespace kindling {
namespace {

// The batches of rollouts, with the latest outputs of the model in place of the first input.
class RolloutFeed final : public DataModule, public UnlimitedData {
 public:
  RolloutFeed(DataModule& data, std::shared_ptr<DataLoader> loader)
      : DataModule(data.options()), data_(data), loader_(std::move(loader)) {}

  std::shared_ptr<DataLoader> train_dataloader() override { return nullptr; }
  std::shared_ptr<DataLoader> val_dataloader() override { return loader_; }
  std::shared_ptr<InputTransform> input_transform() override { return data_.input_transform(); }
  using DataModule::on_after_batch_transfer;
  Batch on_after_batch_transfer(Batch batch, Stage stage) override {
    batch = data_.on_after_batch_transfer(std::move(batch), stage);
    at::Tensor& inputs = batch.tensors()[0];
    if (state_.defined()) inputs = state_.to(inputs.scalar_type());
    return batch;
  }
  // Undefined: the next batch starts other rollouts.
  void continue_with(at::Tensor outputs) { state_ = std::move(outputs); }

 private:
  DataModule& data_;
  std::shared_ptr<DataLoader> loader_;
  at::Tensor state_{};
};

void require_state(const at::Tensor& outputs, const at::Tensor& targets) {
  if (outputs.sizes() == targets.sizes()) return;
  throw DataError({.place = "validation by rollout",
                   .found = "the model's outputs are " + type_text(outputs),
                   .wanted = "states like the targets, " + type_text(targets)});
}

// Squared errors and squared data of each step, summed up on the device.
class RolloutSums {
 public:
  explicit RolloutSums(std::int64_t num_steps)
      : num_numbers_(static_cast<std::size_t>(num_steps)), sums_(num_numbers_.size()) {}

  void add(std::size_t step, const at::Tensor& outputs, const at::Tensor& targets) {
    const at::Tensor data = targets.to(at::kDouble), errors = outputs.to(at::kDouble).sub(data);
    const at::Tensor sums = at::stack({errors.square().sum(), data.square().sum()});
    sums_[step] = sums_[step].defined() ? sums_[step].add(sums) : sums;
    num_numbers_[step] += static_cast<double>(targets.numel());
  }
  // Of the steps that any rollout has made.
  void write_to(RolloutErrors& errors) const {
    std::vector<at::Tensor> made;
    for (const at::Tensor& sums : sums_)
      if (sums.defined()) made.push_back(sums);
    if (made.empty()) return;
    const at::Tensor on_host = move_to(at::stack(made), cpu()).contiguous();
    const double* sums = on_host.const_data_ptr<double>();
    double squared_errors = 0, squared_data = 0, num_numbers = 0;
    for (std::size_t step = 0; step < made.size(); ++step, sums += 2) {
      errors.rmse.push_back(std::sqrt(sums[0] / num_numbers_[step]));
      errors.relative.push_back(std::sqrt(sums[0] / sums[1]));
      squared_errors += sums[0];
      squared_data += sums[1];
      num_numbers += num_numbers_[step];
    }
    errors.total_rmse = std::sqrt(squared_errors / num_numbers);
    errors.total_relative = std::sqrt(squared_errors / squared_data);
  }

 private:
  std::vector<double> num_numbers_;
  std::vector<at::Tensor> sums_;
};

}  // namespace

RolloutErrors rollout_errors(Trainer& trainer, const std::shared_ptr<Module>& model, DataModule& data,
                             const std::function<void()>& on_batch) {
  const Rollouts rollouts = data.rollouts();
  RolloutErrors errors;
  if (!rollouts.loader) return errors;
  const RandomStateGuard random_state(trainer.device());
  RolloutFeed feed(data, rollouts.loader);
  RolloutSums sums(rollouts.num_steps);
  std::int64_t step = 0;
  trainer.validate(model, feed, [&](const Prediction& prediction) {
    const at::Tensor& outputs = prediction.outputs.tensors()[0];
    const at::Tensor& targets = prediction.batch.labels();
    require_state(outputs, targets);
    if (step == 0) errors.num_starts += targets.size(0);
    sums.add(static_cast<std::size_t>(step), data.unscale_targets(outputs), data.unscale_targets(targets));
    step = (step + 1) % rollouts.num_steps;
    feed.continue_with(step == 0 ? at::Tensor() : outputs);
    if (step == 0) forget_carried_states(*model);  // the pass has set those of the training aside
    if (on_batch) on_batch();
  });
  sums.write_to(errors);
  return errors;
}

NamedValues named_values(const RolloutErrors& errors) {
  NamedValues values;
  if (errors.rmse.empty()) return values;
  values = {{"val_rollout_rmse", errors.total_rmse}, {"val_rollout_error", errors.total_relative}};
  for (std::size_t step = 0; step < errors.rmse.size(); ++step)
    values.emplace_back("val_rollout_rmse/" + std::to_string(step + 1), errors.rmse[step]);
  for (std::size_t step = 0; step < errors.relative.size(); ++step)
    values.emplace_back("val_rollout_error/" + std::to_string(step + 1), errors.relative[step]);
  return values;
}

}  // namespace kindling
