// The fake accelerator computes with the CPU's kernels, so a run on it must be bit-identical to one on the
// CPU.
#include <ATen/Context.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include "fake_accelerator.h"
#include "kindling/models/lenet.h"
#include "kindling/models/mlp.h"
#include "kindling/models/small_cnn.h"
#include "kindling/optim/adam.h"
#include "kindling/optim/cosine_schedules.h"
#include "kindling/tensors/move.h"
#include "kindling/tensors/state_dict.h"
#include "support/tensor_matchers.h"
#include "training/loop/small_fit.h"
#include "training/state/batch_source.h"
#include "training/step/automatic_step.h"
#include "training/step/batch_gradients.h"

namespace kindling {
namespace {

std::shared_ptr<Module> make(const std::string& name) {
  if (name == "mlp") return std::make_shared<Mlp>(MlpOptions{.hidden = {16}});
  if (name == "lenet") return std::make_shared<Lenet>();
  return std::make_shared<SmallCnn>(SmallCnnOptions{.channels = {4, 8}, .hidden = 16});
}

NoiseImages images_for(const std::string& name) { return {40, name == "lenet" ? 28 : 8, 8}; }

// A device keeps the rates of a schedule in float32.
Schedule cosine_of_float32() {
  return Schedule([cosine = cosine_schedule()](const SchedulePoint& at) {
    return static_cast<double>(static_cast<float>(cosine(at)));
  });
}

// Clips without effect, because norms are summed in a different order on the host.
TrainerOptions clipped(std::int64_t num_gpus) {
  return {.max_epochs = 3,
          .num_gpus = num_gpus,
          .gradient_clip_val = 1000,
          .log_every_n_steps = 1,
          .optimizer = [](auto parameters) { return std::make_unique<AdamW>(std::move(parameters)); },
          .schedule = cosine_of_float32()};
}

struct Trained {
  std::vector<Record> records;
  std::shared_ptr<Module> model;
};

// Seeds every generator, that of the dropout on the device included.
Trained fitted(const std::string& name, TrainerOptions options) {
  at::manual_seed(3);
  const auto logger = std::make_shared<MemoryLogger>();
  options.loggers = {logger};
  Trained run{.records = {}, .model = make(name)};
  NoiseImages data = images_for(name);
  // The lazy layers draw their weights here, so that dropout's stream starts at the same place everywhere.
  run.model->eval();
  run.model->forward(data.on_after_batch_transfer(data.val_dataloader()->dataset().slice(0, 1))[0]);
  at::manual_seed(4);
  Trainer(options).fit(run.model, data);
  run.records = logger->records();
  return run;
}

void expect_same_state(const Module& actual, const Module& expected) {
  const StateDict wanted = state_dict(expected);
  for (const auto& [name, tensor] : state_dict(actual).tensors)
    EXPECT_TRUE(same(tensor, *wanted.find(name))) << name;
}

class FakeRun : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(FakeModels, FakeRun, testing::Values("mlp", "lenet", "small_cnn"));

TEST_P(FakeRun, MatchesLossesMetricsAndWeightsOfTheCpu) {
  const Trained expected = fitted(GetParam(), clipped(0)), run = fitted(GetParam(), clipped(1));
  ASSERT_EQ(run.records.size(), expected.records.size());
  for (std::size_t i = 0; i < run.records.size(); ++i)
    for (const char* name :
         {"train_loss_step", "grad_norm", "train_loss", "train_acc", "val_loss", "val_acc", "lr"}) {
      const double *value = run.records[i].find(name), *wanted = expected.records[i].find(name);
      ASSERT_EQ(value == nullptr, wanted == nullptr) << name;
      // A norm of float32 numbers, in two orders of summation.
      const double tolerance = std::string_view(name) == "grad_norm" ? 1e-6 : 0;
      if (value != nullptr) {
        EXPECT_NEAR(*value, *wanted, tolerance * *wanted) << name << ", record " << i;
      }
    }
  expect_same_state(*run.model, *expected.model);
}

TEST_P(FakeRun, IsCorrectWithLateCopies) {
  const Trained expected = fitted(GetParam(), clipped(0));
  const fake::LateCopies late;
  const Trained run = fitted(GetParam(), clipped(1));
  EXPECT_EQ(value_of(run.records.back(), "val_loss"), value_of(expected.records.back(), "val_loss"));
  EXPECT_EQ(value_of(run.records.back(), "train_loss"), value_of(expected.records.back(), "train_loss"));
  expect_same_state(*run.model, *expected.model);
}

TEST_P(FakeRun, TouchesNoDeviceMemoryFromTheHost) {
  const fake::ProtectMemory protection;  // a read crashes
  EXPECT_EQ(fitted(GetParam(), clipped(1)).records.size(), 18);
}

// A trainer uses the first GPU; its parts use any.
Trained stepped(const std::string& name, Device device) {
  at::manual_seed(3);
  const TrainerOptions options = clipped(0);
  NoiseImages data = images_for(name);
  Trained run{.records = {}, .model = make(name)};
  run.model->eval();
  run.model->forward(data.on_after_batch_transfer(data.val_dataloader()->dataset().slice(0, 1))[0]);
  run.model->train();
  at::manual_seed(4);
  Trainer owner;
  const auto context = std::make_shared<TrainingContext>(
      owner, options, device.is_cpu() ? std::vector<Device>{} : std::vector{device});
  TrainState& state = context->state;
  const LogScope log(context->calls, &state.log);
  attach(*run.model, context);
  state.start(run.model);
  state.require_optimizer();
  const StepContext steps(*context);
  AutomaticStep step(
      steps, std::make_unique<BatchGradients>(steps),
      std::make_unique<OptimizerUpdate>(steps, context->callbacks, context->stop, /*capture=*/nullptr));
  BatchSource batches(data, data.train_dataloader(), Stage::train, context->placement, std::nullopt);
  state.num_train_batches = batches.num_batches();
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    batches.seek(epoch);
    Batch batch;
    while (batches.next(batch)) {
      step.run(batch, {});
      ++state.progress.global_step;
    }
  }
  state.log.move_to_host();
  Record record;
  record.values = state.log.means();
  run.records.push_back(record);
  return run;
}

TEST_P(FakeRun, IsTheSameOnTheSecondDevice) {
  const Trained expected = stepped(GetParam(), cpu());
  const fake::LateCopies late;
  const Trained run = stepped(GetParam(), fake::device(1));
  for (const auto& parameter : run.model->parameters()) EXPECT_EQ(parameter.device(), fake::device(1));
  EXPECT_EQ(run.records[0].values, expected.records[0].values);
  EXPECT_EQ(run.records[0].values.size(), 2);  // train_loss, train_acc
  expect_same_state(*run.model, *expected.model);
}

}  // namespace
}  // namespace kindling
