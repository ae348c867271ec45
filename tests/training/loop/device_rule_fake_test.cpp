// Between prepare_batch and the end of an epoch nothing reads a tensor on the host: counted by the device.
#include <gtest/gtest.h>
#include <torch/nn.h>

#include "fake_accelerator.h"
#include "kindling/models/lenet.h"
#include "kindling/models/mlp.h"
#include "kindling/optim/adam.h"
#include "kindling/optim/cosine_schedules.h"
#include "kindling/optim/decay_schedules.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

using Counts = fake::Counts;

// The device's counts since the last call.
Counts look() {
  const Counts counts = fake::counts();
  fake::reset_counts();
  return counts;
}

// Counts each training loop, from its start to its last step, and each whole epoch with its validation.
class Counter : public Callback {
 public:
  void on_train_epoch_start(Trainer&, Module&) override { look(); }
  void on_train_batch_end(Trainer& trainer, Module&) override {
    const auto progress = trainer.progress();
    if (progress.batch == progress.num_train_batches) loops.push_back(look());
  }
  void on_epoch_end(Trainer&, Module&, const Record& record) override {
    ends.push_back(look());
    records.push_back(record);
  }

  std::vector<Counts> loops;  // of the training batches
  std::vector<Counts> ends;   // of the end of the training epoch, and the validation
  std::vector<Record> records;
};

constexpr std::int64_t kBatchSize = 4;
constexpr std::int64_t kNumEpochs = 3;

struct Case {
  std::string model;
  std::int64_t num_batches;
  std::int64_t log_every_n_steps;
  std::string step_graph = "off";
};

std::ostream& operator<<(std::ostream& stream, const Case& c) {
  return stream << c.model << ", " << c.num_batches << " batches, log every " << c.log_every_n_steps
                << ", step graph " << c.step_graph;
}

class FakeDeviceRule : public testing::TestWithParam<Case> {
 protected:
  // Of one byte, in an epoch: whether a replay is the step.
  static std::int64_t most_answers() { return GetParam().step_graph == "off" ? 0 : 1; }
  std::shared_ptr<Counter> run() {
    const auto [name, num_batches, log_every_n_steps, step_graph] = GetParam();
    std::shared_ptr<Module> model;
    if (name == "lenet")
      model = std::make_shared<Lenet>();
    else
      model = std::make_shared<Mlp>(MlpOptions{.hidden = {16}});
    NoiseImages data(num_batches * kBatchSize, name == "lenet" ? 28 : 10, kBatchSize, "off");
    const auto counter = std::make_shared<Counter>();
    Trainer({.max_epochs = kNumEpochs,
             .num_gpus = 1,
             .gradient_clip_val = 0.5,
             .step_graph = step_graph,
             .log_every_n_steps = log_every_n_steps,
             .optimizer = [](auto parameters) { return std::make_unique<AdamW>(std::move(parameters)); },
             .schedule = with_warmup(cosine_schedule(), {.warmup_steps = 2}),
             .callbacks = {counter}})
        .fit(model, data);
    EXPECT_EQ(counter->loops.size(), std::size_t{kNumEpochs});
    EXPECT_EQ(counter->ends.size(), std::size_t{kNumEpochs});
    return counter;
  }
};

// A batch has two tensors of uint8: images of 100 pixels or more, and labels.
TEST_P(FakeDeviceRule, LoopNeverWaits) {
  const std::int64_t num_batches = GetParam().num_batches;
  const auto counter = run();
  for (const Counts& loop : counter->loops) {
    EXPECT_EQ(loop.host_waits(), 0);
    EXPECT_EQ(loop.item_reads, 0);
    EXPECT_EQ(loop.data_dependent_ops, 0);
    EXPECT_EQ(loop.blocking_host_to_device_copies, 0);
    EXPECT_EQ(loop.blocking_device_to_host_copies, 0);
    EXPECT_LE(loop.host_to_device_copies, 2 * num_batches);
    EXPECT_GE(loop.host_to_device_bytes, num_batches * kBatchSize * 101);
    if (GetParam().log_every_n_steps == 0) {
      EXPECT_LE(loop.device_to_host_copies, most_answers());
      EXPECT_EQ(loop.device_to_host_bytes, loop.device_to_host_copies);
    }
  }
}

TEST_P(FakeDeviceRule, LogMovesOncePerEpochAndOncePerValidation) {
  const std::int64_t num_batches = GetParam().num_batches;
  const auto counter = run();
  for (const Counts& end : counter->ends) {
    EXPECT_EQ(end.blocking_host_to_device_copies, 0);
    EXPECT_LE(end.host_to_device_copies, 2 * num_batches);
    EXPECT_EQ(end.item_reads + end.data_dependent_ops + end.stream_waits + end.device_waits, 0);
    if (GetParam().log_every_n_steps == 0) {
      EXPECT_EQ(end.device_to_host_copies, 2);
      // Loss, accuracy and the number of labels of both, each as a float; in a validation the number of
      // outputs with NaN, and in a training step the number of the loss, the loss that counts, and what the
      // guard has found, too.
      EXPECT_EQ(end.device_to_host_bytes, (4 + 6) * 4 * num_batches);
      EXPECT_EQ(end.host_waits(), 2);
    } else {
      EXPECT_LE(end.device_to_host_copies, 2);
      EXPECT_LE(end.host_waits(), 3);  // a preview that was under way, its rest, the validation
    }
  }
}

TEST_P(FakeDeviceRule, RecordsMatchTheDevicesCounts) {
  const auto counter = run();
  for (std::size_t i = 0; i < counter->records.size(); ++i) {
    const Counts &loop = counter->loops[i], &end = counter->ends[i];
    const Record& record = counter->records[i];
    EXPECT_EQ(value_of(record, "host_waits"), loop.host_waits() + end.host_waits());
    EXPECT_EQ(value_of(record, "device_to_host_copies"),
              loop.device_to_host_copies + end.device_to_host_copies);
    EXPECT_EQ(value_of(record, "device_to_host_bytes"), loop.device_to_host_bytes + end.device_to_host_bytes);
    EXPECT_EQ(value_of(record, "host_to_device_copies"),
              loop.host_to_device_copies + end.host_to_device_copies);
    EXPECT_EQ(value_of(record, "host_to_device_bytes"), loop.host_to_device_bytes + end.host_to_device_bytes);
  }
}

TEST_P(FakeDeviceRule, IsCorrectWithLateCopies) {
  const fake::LateCopies late;
  const auto counter = run();
  for (const Counts& loop : counter->loops) EXPECT_EQ(loop.host_waits(), 0);
}

// Schedules, groups and frozen parts are numbers on the host: nothing of them asks the device.
TEST(FakeDeviceRuleOfSchedules, NoneMakesTheLoopWait) {
  const std::vector<Schedule> schedules{
      {},
      one_cycle_schedule({.cycle_momentum = true}),
      plateau_schedule({.monitor = "train_loss", .mode = "max", .patience = 0}),
      sequence_schedule({linear_schedule(), inverse_sqrt_schedule()}, {.milestones = {10}})};
  std::vector<Counts> counts;
  for (const Schedule& schedule : schedules) {
    const auto counter = std::make_shared<Counter>();
    const auto model = std::make_shared<Mlp>(MlpOptions{.hidden = {16}});
    if (schedule) model->freeze_by_name({"net.1.*"});
    NoiseImages data(20 * kBatchSize, 10, kBatchSize, "off");
    Trainer({.max_epochs = kNumEpochs,
             .num_gpus = 1,
             .optimizer =
                 [](const ParameterGroups& all) {
                   return std::make_unique<AdamW>(by_name(all, {{.match = "*.bias", .weight_decay = 0}}));
                 },
             .schedule = schedule,
             .callbacks = {counter}})
        .fit(model, data);
    ASSERT_EQ(counter->loops.size(), std::size_t{kNumEpochs});
    for (const Counts& loop : counter->loops) {
      EXPECT_EQ(loop.host_waits() + loop.item_reads + loop.data_dependent_ops, 0);
      EXPECT_EQ(loop.blocking_host_to_device_copies + loop.blocking_device_to_host_copies, 0);
      EXPECT_LE(loop.device_to_host_copies, 1);  // whether a replay is the step
    }
    counts.push_back(counter->ends.back());
    EXPECT_EQ(counts.back().device_to_host_copies, counts.front().device_to_host_copies);
    EXPECT_EQ(counts.back().host_waits(), counts.front().host_waits());
  }
}

INSTANTIATE_TEST_SUITE_P(FakeModels, FakeDeviceRule,
                         testing::Values(Case{"mlp", 2, 0}, Case{"mlp", 100, 0}, Case{"lenet", 2, 0},
                                         Case{"lenet", 100, 0}, Case{"mlp", 20, 1}, Case{"lenet", 20, 1},
                                         Case{"mlp", 100, 0, "auto"}, Case{"lenet", 100, 0, "auto"},
                                         Case{"mlp", 20, 1, "auto"}),
                         [](const auto& info) {
                           return info.param.model + "_" + std::to_string(info.param.num_batches) +
                                  (info.param.log_every_n_steps > 0 ? "_every_step" : "") +
                                  (info.param.step_graph == "off" ? "" : "_recorded");
                         });

// Checks that the counters detect a wait.
TEST(FakeDeviceCounts, SeeAModelThatReadsItsLoss) {
  class Reader : public Slope {
   public:
    at::Tensor training_step(const Batch& batch) override {
      const at::Tensor loss = Slope::training_step(batch);
      last = loss.item<double>();
      return loss;
    }
    double last = 0;
  };
  TensorData data = ramp(6, 0, 2);
  const auto counter = std::make_shared<Counter>();
  Trainer({.max_epochs = 1, .num_gpus = 1, .callbacks = {counter}}).fit(std::make_shared<Reader>(), data);
  EXPECT_EQ(counter->loops.at(0).host_waits(), 3);
}

}  // namespace
}  // namespace kindling
