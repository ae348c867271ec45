// A run that was stopped anywhere, saved into memory and resumed elsewhere ends as if it had never stopped.
#include "training/state/train_state.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include "device/random_state.h"
#include "kindling/base/error.h"
#include "kindling/optim/adam.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"
#include "training/loop/evaluate_loop.h"
#include "training/loop/fit_loop.h"
#include "training/loop/resumed_fit.h"
#include "training/step/automatic_step.h"
#include "training/step/batch_gradients.h"

namespace kindling {
namespace {

// Stops after a step; counts the steps it has seen, as a state of its own; freezes a layer from the second
// step to the second epoch.
class Counter : public Callback {
 public:
  void on_train_epoch_start(Trainer&, Module& model) override {
    if (progress->epoch == 1) set_frozen(model, false);
  }
  void on_train_batch_end(Trainer&, Module& model) override {
    if (++num_steps == 2) set_frozen(model, true);
    if (progress->global_step == stop_at) stop.request_stop();
  }
  void save_state(StateDict& state) const override {
    state.metadata["num_steps"] = std::to_string(num_steps);
    state.tensors.emplace_back("tensor", at::full({2}, num_steps));
  }
  void load_state(const StateDict& state) override {
    num_steps = std::stoll(state.metadata.at("num_steps"));
    tensor = *state.find("tensor");
  }
  static void set_frozen(Module& model, bool frozen) {
    for (const auto& item : model.named_parameters())
      if (item.key().starts_with("net.1.") && item.value().defined()) item.value().requires_grad_(!frozen);
  }

  std::int64_t num_steps = 0, stop_at = -1;
  at::Tensor tensor;
  const Progress* progress = nullptr;
  StopToken stop;
};

// The parts of a trainer.
class Training {
 public:
  Training(TrainerOptions options, Device, std::int64_t num_gpus)
      : context(make_context(owner,
                             [&] {
                               options.callbacks = {counter};
                               options.loggers = {logger};
                               options.num_gpus = num_gpus;
                               return options;
                             }())),
        data(26, 4, 4),
        loop(context) {
    counter->progress = &state.progress;
    model->stop = context->stop.token();
    counter->stop = context->stop.token();
    at::manual_seed(7);
    attach(*model, context);
    state.start(model);
    loop.set_data(BatchSource(data, data.train_dataloader(), Stage::train, context->placement, std::nullopt),
                  {{"", {data, data.val_dataloader(), Stage::val, context->placement, std::nullopt}}});
    start();
  }

  void load(const StateDict& saved) { loop.resume(saved); }
  void fit() {
    loop.run();
    context->stop.reset();
  }

  const std::shared_ptr<Counter> counter = std::make_shared<Counter>();
  const std::shared_ptr<MemoryLogger> logger = std::make_shared<MemoryLogger>();
  const std::shared_ptr<Busy> model = std::make_shared<Busy>();
  Trainer owner{TrainerOptions{}};
  const std::shared_ptr<TrainingContext> context;
  TrainState& state = context->state;
  NoiseImages data;
  FitLoop loop;

 private:
  void start() {
    const StepContext steps(*context);
    loop.start(std::make_unique<AutomaticStep>(
        steps, std::make_unique<BatchGradients>(steps),
        std::make_unique<OptimizerUpdate>(steps, context->callbacks, context->stop, /*capture=*/nullptr)));
  }
};

class TrainStates : public OnDevice {
 protected:
  static constexpr std::int64_t kEpochs = 3, kBatches = 7;

  TrainerOptions options(const std::string& rule) const {
    return {.max_epochs = kEpochs,
            .gradient_clip_val = 1,
            .log_every_n_steps = 1,
            .optimizer = [rule](ParameterGroups parameters) -> std::unique_ptr<Optimizer> {
              if (rule == "sgd")
                return std::make_unique<Sgd>(parameters, SgdOptions{.lr = 0.1, .momentum = 0.9});
              return std::make_unique<AdamW>(parameters, AdamWOptions{.lr = 0.01});
            },
            .schedule = cosine_schedule()};
  }
  // Compares everything of two runs, their random states included.
  void expect_same(Training& a, Training& b, const std::string& where) const {
    StateDict of_a, of_b;
    a.state.save(of_a);
    b.state.save(of_b);
    ASSERT_EQ(of_a.tensors.size(), of_b.tensors.size()) << where;
    for (std::size_t i = 0; i < of_a.tensors.size(); ++i) {
      EXPECT_EQ(of_a.tensors[i].first, of_b.tensors[i].first) << where;
      if (of_a.tensors[i].first.starts_with("random."))
        continue;  // one and the same generator: looked at by itself
      EXPECT_TRUE(same(of_a.tensors[i].second.detach().cpu(), of_b.tensors[i].second.detach().cpu()))
          << where << ", " << of_a.tensors[i].first;
    }
    of_a.metadata.erase("run_id");
    of_b.metadata.erase("run_id");
    EXPECT_EQ(of_a.metadata, of_b.metadata) << where;
  }
};
KINDLING_RUN_ON_TRAINER_DEVICES(TrainStates);

TEST_P(TrainStates, ResumeBitIdenticallyFromAnyStep) {
  for (const std::string rule : {"sgd", "adamw"}) {
    Training whole(options(rule), device_, num_gpus_wanted());
    whole.fit();
    const auto random_at_end = random_state(device_);
    for (std::int64_t stop_at = 1; stop_at < kEpochs * kBatches; stop_at += 2) {
      const std::string where = rule + " stopped at step " + std::to_string(stop_at);
      Training first(options(rule), device_, num_gpus_wanted());
      first.counter->stop_at = stop_at;
      first.fit();
      EXPECT_EQ(first.state.progress.global_step, stop_at);
      StateDict saved;
      first.state.save(saved);
      saved = copy_to(saved, cpu());

      Training second(options(rule), device_, num_gpus_wanted());
      at::rand({static_cast<std::int64_t>(stop_at)});  // whatever has been drawn in between
      second.load(saved);
      EXPECT_EQ(second.counter->num_steps, stop_at);
      EXPECT_TRUE(same(second.counter->tensor, at::full({2}, stop_at)));
      second.fit();
      expect_same(second, whole, where);
      for (std::size_t i = 0; i < random_at_end.size(); ++i)
        EXPECT_TRUE(same(random_state(device_)[i], random_at_end[i])) << where;

      std::vector<Record> records = first.logger->records();
      const auto& rest = second.logger->records();
      records.insert(records.end(), rest.begin(), rest.end());
      ASSERT_EQ(records.size(), whole.logger->records().size()) << where;
      for (std::size_t i = 0; i < records.size(); ++i) {
        EXPECT_EQ(records[i].kind, whole.logger->records()[i].kind) << where;
        EXPECT_EQ(records[i].global_step, whole.logger->records()[i].global_step) << where;
        EXPECT_EQ(numbers_of(records[i]), numbers_of(whole.logger->records()[i]))
            << where << ", record " << i;
      }
    }
  }
}

TEST_P(TrainStates, ResumeFromTheMiddleOfAValidation) {
  Training whole(options("adamw"), device_, num_gpus_wanted());
  whole.fit();
  Training first(options("adamw"), device_, num_gpus_wanted()),
      second(options("adamw"), device_, num_gpus_wanted());
  first.model->stop_at_val_batch = kBatches + 3;  // in the second epoch
  at::manual_seed(7);
  first.fit();
  EXPECT_EQ(
      first.state.progress,
      (Progress{.epoch = 1, .batch = kBatches, .global_step = 2 * kBatches, .phase = Phase::validation}));
  StateDict saved;
  first.state.save(saved);
  second.load(copy_to(saved, cpu()));
  second.fit();
  expect_same(second, whole, "validation");
  EXPECT_EQ(numbers_of(second.logger->records().front()),
            numbers_of(whole.logger->records()[2 * kBatches + 1]));
}

TEST_P(TrainStates, IncludeTheRandomState) {
  Training whole(options("sgd"), device_, num_gpus_wanted());
  whole.fit();
  Training first(options("sgd"), device_, num_gpus_wanted());
  first.counter->stop_at = 3;
  first.fit();
  StateDict saved;
  first.state.save(saved);
  saved = copy_to(saved, cpu());
  std::erase_if(saved.tensors, [](const auto& item) { return item.first.starts_with("random."); });
  Training second(options("sgd"), device_, num_gpus_wanted());
  at::manual_seed(99);
  second.load(saved);
  second.fit();
  EXPECT_FALSE(same(second.model->parameters()[0].detach(), whole.model->parameters()[0].detach()))
      << "dropout drew other numbers, and nobody noticed";
}

TEST_P(TrainStates, RefuseMismatchedStates) {
  Training first(options("sgd"), device_, num_gpus_wanted());
  first.counter->stop_at = 3;
  first.fit();
  StateDict saved;
  first.state.save(saved);
  saved = copy_to(saved, cpu());
  {
    Training second(options("adamw"), device_, num_gpus_wanted());
    EXPECT_NE(error_text<CheckpointError>([&] { second.state.load(saved); }).find("momentum_buffer"),
              std::string::npos);
  }
  {
    StateDict lost = saved;
    lost.metadata.erase("progress.batch");
    Training second(options("sgd"), device_, num_gpus_wanted());
    EXPECT_NE(error_text<CheckpointError>([&] { second.state.load(lost); }).find("'progress.batch'"),
              std::string::npos);
  }
  {
    StateDict other = saved;
    other.metadata["callback_type.0"] = "another";
    Training second(options("sgd"), device_, num_gpus_wanted());
    EXPECT_THROW(second.state.load(other), CheckpointError);
  }
}

}  // namespace
}  // namespace kindling
