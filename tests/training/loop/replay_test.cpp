// Any step of a run happens again, and is compared with what the run has recorded.
#include "kindling/training/replay.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>

#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/loggers/jsonl_logger.h"
#include "kindling/tensors/checkpoint_file.h"
#include "kindling/training/model_checkpoint.h"
#include "support/device_under_test.h"
#include "support/rank_threads.h"
#include "support/scratch.h"
#include "training/loop/recurrent_fit.h"
#include "training/loop/resumed_fit.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

void record_in(const fs::path& run, TrainerOptions& options, std::int64_t checkpoint_every) {
  options.loggers.push_back(std::make_shared<JsonlLogger>(run / "metrics.jsonl"));
  if (checkpoint_every > 0)
    options.callbacks.push_back(
        std::make_shared<ModelCheckpoint>(ModelCheckpointOptions{.dirpath = run / "checkpoints",
                                                                 .every_n_epochs = 0,
                                                                 .every_n_steps = checkpoint_every,
                                                                 .keep_last = 100}));
}

std::string error_of_replay(const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "(no error)";
}

void replace_text(const fs::path& file, const std::string& from, const std::string& to) {
  std::string text = read_file(file, 1 << 20);
  const std::size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  write_file_atomically(file, text);
}

class Replays : public OnDevice {
 protected:
  ResumedFit made(const std::string& rule, const std::string& schedule) const {
    return ResumedFit(rule, num_gpus_wanted(), schedule);
  }
  // A fit over batches {0, 1}, {2, 3}, {4} per epoch.
  TrainerOptions of_slope(std::int64_t max_epochs = 3) const {
    return {.max_epochs = max_epochs, .num_gpus = num_gpus_wanted(), .optimizer = sgd(0.125)};
  }
  void train_slope(const fs::path& run, std::int64_t checkpoint_every, TrainerOptions options) const {
    record_in(run, options, checkpoint_every);
    TensorData data = ramp(5, 2, 2);
    Trainer(options).fit(std::make_shared<Slope>(), data);
  }
  ReplayResult replay_slope(const ReplayOptions& replayed, const TrainerOptions& options) const {
    TensorData data = ramp(5, 2, 2);
    return replay(options, std::make_shared<Slope>(), data, replayed);
  }
};
KINDLING_RUN_ON_TRAINER_DEVICES(Replays);

// Dropout, batch norm, random transforms, callbacks with state, averages, schedules, validations that draw.
TEST_P(Replays, AreBitIdenticalToTheRun) {
  const std::vector<std::pair<std::string, std::string>> trainings{
      {"sgd", "cosine"}, {"adam", "plateau"}, {"adamw", "one_cycle"}, {"sgd", "no"}};
  std::int64_t step = 5;
  for (const auto& [rule, schedule] : trainings) {
    const Scratch run(memory_folder());
    ResumedFit whole = made(rule, schedule);
    if (schedule == "cosine") whole.average("ema");
    if (schedule == "one_cycle") whole.options.accumulate_grad_batches = 2;
    record_in(run.folder(), whole.options, 7);
    whole.fit();
    for (const bool has_checkpoints : {true, false}) {
      step = step * 5 % 29 + 2;  // 27, 20, 15, …
      ResumedFit again = made(rule, schedule);
      if (schedule == "cosine") again.average("ema");
      if (schedule == "one_cycle") again.options.accumulate_grad_batches = 2;
      if (!has_checkpoints) fs::remove_all(run / "checkpoints");
      const std::string where = rule + ", " + schedule + ", step " + std::to_string(step);
      const ReplayResult result = replay(again.options, again.model, again.data,
                                         {.run = run.folder(), .step = step, .until = step + 2});
      EXPECT_EQ(result.start_step, has_checkpoints ? (step - 1) / 7 * 7 : 0) << where;
      EXPECT_EQ(result.confirmed_step, step + 2) << where;
      ASSERT_EQ(result.steps.size(), 3) << where;
      for (const Record& record : whole.logger->records()) {
        if (record.kind != Record::Kind::step) continue;
        const std::int64_t i = record.global_step - step;
        if (i < 0 || i > 2) continue;
        const ReplayedStep& replayed = result.steps[static_cast<std::size_t>(i)];
        EXPECT_EQ(replayed.loss, *record.find("train_loss_step")) << where;
        EXPECT_EQ(replayed.lr, *record.find("lr")) << where;
        EXPECT_FLOAT_EQ(static_cast<float>(replayed.grad_norm), static_cast<float>(*record.find("grad_norm")))
            << where;
      }
    }
  }
}

TEST_P(Replays, OfAModelWithHiddenStateAreBitIdentical) {
  const Scratch run(memory_folder());
  TrainerOptions options{
      .max_epochs = 3, .num_gpus = num_gpus_wanted(), .log_every_n_steps = 1, .optimizer = sgd(0.1)};
  TrainerOptions recorded = options;
  record_in(run.folder(), recorded, 4);
  WindowData data;
  Trainer(recorded).fit(std::make_shared<Predictor>(), data);
  for (std::int64_t step = 1; step <= 15; ++step) {
    const ReplayResult result =
        replay(options, std::make_shared<Predictor>(), data, {.run = run.folder(), .step = step});
    EXPECT_EQ(result.confirmed_step, step);
    ASSERT_EQ(result.steps.size(), 1);
    const ReplayedBatch& batch = result.steps[0].batches.at(0);
    EXPECT_NEAR(batch.mean_loss, result.steps[0].loss, 1e-6) << "with the state of the earlier windows";
    EXPECT_TRUE(batch.losses.defined()) << batch.no_losses;
  }
}

// w: 0, then 0.5/8, then 2.5/16 more, and 4/8: step 3 has w = 0.375 before it and 0.875 after it.
TEST_P(Replays, HaveTheSamplesGradientsAndWeightsOfTheStep) {
  const Scratch run;
  train_slope(run.folder(), 0, of_slope());
  const ReplayResult result = replay_slope({.run = run.folder(), .step = 2}, of_slope());
  ASSERT_EQ(result.steps.size(), 1);
  const ReplayedStep& step = result.steps[0];
  EXPECT_EQ(step.global_step, 2);
  EXPECT_EQ(step.epoch, 1);
  EXPECT_EQ(step.batch, 1);
  EXPECT_EQ(step.lr, 0.125);
  EXPECT_EQ(step.loss, (2 - 0.0625) * 2.5);
  EXPECT_EQ(step.grad_norm, 2.5);
  ASSERT_EQ(step.batches.size(), 1);
  const ReplayedBatch& batch = step.batches[0];
  EXPECT_TRUE(same(batch.batch.tensors()[0], at::tensor({2.F, 3.F}).unsqueeze(1)));
  EXPECT_TRUE(same(batch.indices, at::tensor(std::vector<std::int64_t>{2, 3})));
  EXPECT_TRUE(same(batch.outputs, at::tensor({0.125F, 0.1875F}).unsqueeze(1)));
  EXPECT_TRUE(same(batch.losses, at::tensor({3.875, 5.8125}, at::kDouble)));
  EXPECT_TRUE(same(batch.weights, at::ones({2}, at::kDouble)));
  EXPECT_EQ(batch.no_losses, "");
  ASSERT_EQ(step.gradient_norms.size(), 1);
  EXPECT_EQ(step.gradient_norms[0], std::pair(std::string("weight"), 2.5));
  EXPECT_TRUE(same(*step.gradients.find("weight"), at::tensor({-2.5F})));
  EXPECT_TRUE(same(*step.before.find("weight"), at::tensor({0.0625F})));
  EXPECT_TRUE(same(*step.after.find("weight"), at::tensor({0.375F})));
  EXPECT_EQ(result.confirmed_step, 0);
  EXPECT_EQ(result.next_check, 3);

  save_step(step, run / "step.safetensors");
  const StateDict saved = load_safetensors(run / "step.safetensors");
  std::vector<std::string> names;
  for (const auto& [name, tensor] : saved.tensors) names.push_back(name);
  std::ranges::sort(names);
  EXPECT_EQ(names, (std::vector<std::string>{"after.weight", "batch.0", "batch.1", "before.weight",
                                             "gradients.weight", "indices", "losses", "outputs"}));
  EXPECT_EQ(saved.metadata.at("global_step"), "2");
  EXPECT_EQ(saved.metadata.at("batch"), "1");
}

TEST_P(Replays, IncludeTheValidationAfterTheLastStep) {
  const Scratch run;
  TrainerOptions options = of_slope();
  options.val_check_interval = std::int64_t{1};
  train_slope(run.folder(), 0, options);
  const ReplayResult result = replay_slope({.run = run.folder(), .step = 2}, options);
  EXPECT_EQ(result.confirmed_step, 2);
  EXPECT_EQ(result.num_records, 2);
  EXPECT_EQ(result.steps.size(), 1);
}

TEST_P(Replays, HaveAllBatchesOfAnAccumulatedStep) {
  const Scratch run;
  TrainerOptions options = of_slope();
  options.accumulate_grad_batches = 2;
  train_slope(run.folder(), 0, options);
  const ReplayResult result = replay_slope({.run = run.folder(), .step = 3, .until = 4}, options);
  ASSERT_EQ(result.steps.size(), 2);
  ASSERT_EQ(result.steps[0].batches.size(), 2);
  EXPECT_TRUE(same(result.steps[0].batches[1].indices, at::tensor(std::vector<std::int64_t>{2, 3})));
  EXPECT_TRUE(result.steps[1].batches.empty());
  EXPECT_EQ(result.confirmed_step, 4);
}

TEST_P(Replays, GradientsAreThoseBeforeClipping) {
  const Scratch run;
  TrainerOptions options = of_slope();
  options.gradient_clip_val = 0.5;
  train_slope(run.folder(), 0, options);
  EXPECT_EQ(replay_slope({.run = run.folder(), .step = 2}, options).steps[0].grad_norm, 2.5);
}

TEST_P(Replays, FindEveryChangeOfWhatTheRunRecorded) {
  const Scratch scratch;
  const auto differs = [&](const std::string& name, const auto& change, std::int64_t step) {
    const fs::path run = scratch / name;
    fs::create_directories(run);
    train_slope(run, 2, of_slope());  // 9 steps
    change(run);
    return error_of_replay([&] { replay_slope({.run = run, .step = step}, of_slope()); });
  };
  EXPECT_EQ(differs(
                "same", [](const fs::path&) {}, 6),
            "(no error)");
  const std::string of_loss = differs(
      "loss",
      [](const fs::path& run) {
        replace_text(run / "metrics.jsonl",
                     "\"global_step\": 6, \"train_loss\": ", "\"global_step\": 6, \"train_loss\": 1");
      },
      6);
  EXPECT_NE(of_loss.find("step 6"), std::string::npos) << of_loss;
  EXPECT_NE(of_loss.find("train_loss is "), std::string::npos) << of_loss;
  const std::string of_digest = differs(
      "digest",
      [](const fs::path& run) {
        const std::string text = read_file(run / "metrics.jsonl", 1 << 20);
        const std::size_t line = text.find("\"global_step\": 6"),
                          at = text.find("\"log_digest\": ", line) + 14;
        replace_text(run / "metrics.jsonl", text.substr(at, text.find('}', at) - at), "17");
      },
      6);
  EXPECT_NE(of_digest.find("the log digest after step 6 is"), std::string::npos) << of_digest;
  const auto change_checkpoint = [](const char* file, const auto& change) {
    return [=](const fs::path& run) {
      const fs::path path = run / "checkpoints" / file;
      StateDict state = load_checkpoint(path);
      change(state);
      save_checkpoint(state, path);
    };
  };
  const auto nudge = [](StateDict& state) {
    for (auto& [name, tensor] : state.tensors)
      if (name == "model.weight") tensor = at::nextafter(tensor, at::full_like(tensor, 100));
  };
  const std::string of_weights = differs("weights", change_checkpoint("step-00000004.safetensors", nudge), 4);
  EXPECT_NE(of_weights.find("'model.weight' differs after step 4"), std::string::npos) << of_weights;
  // The checkpoint that it starts from shows in the next losses.
  const std::string of_start = differs("start",
                                       change_checkpoint("step-00000004.safetensors",
                                                         [](StateDict& state) {
                                                           for (auto& [name, tensor] : state.tensors)
                                                             if (name == "model.weight")
                                                               tensor = tensor + 0.01;
                                                         }),
                                       6);
  EXPECT_NE(of_start.find("step 6"), std::string::npos) << of_start;
  const std::string of_rows =
      differs("rows",
              change_checkpoint("step-00000004.safetensors",
                                [](StateDict& state) { state.metadata["progress.log_digest"] = "17"; }),
              4);
  EXPECT_NE(of_rows.find("the log digest after step 4"), std::string::npos) << of_rows;
}

TEST_P(Replays, FindOtherDataAndOtherRates) {
  const Scratch run;
  train_slope(run.folder(), 0, of_slope());
  TrainerOptions other = of_slope();
  other.optimizer = sgd(0.25);
  EXPECT_NE(error_of_replay([&] { replay_slope({.run = run.folder(), .step = 3}, other); }).find("step 3"),
            std::string::npos);
  const at::Tensor x = at::arange(5, at::kFloat).unsqueeze(1), y = 2 * x;
  y[4][0] = 8.0001F;
  TensorData data({x, y}, {x.narrow(0, 0, 2), y.narrow(0, 0, 2)}, {.batch_size = 2, .shuffle = false});
  const std::string error = error_of_replay(
      [&] { replay(of_slope(), std::make_shared<Slope>(), data, {.run = run.folder(), .step = 3}); });
  EXPECT_NE(error.find("the replay differs from the run"), std::string::npos) << error;
}

TEST_P(Replays, LeaveTheRunAsItIs) {
  const Scratch run;
  train_slope(run.folder(), 2, of_slope());
  const auto contents = [&] {
    std::map<std::string, std::pair<std::string, fs::file_time_type>> files;
    for (const auto& entry : fs::recursive_directory_iterator(run.folder()))
      if (entry.is_regular_file())
        files[entry.path().string()] = {read_file(entry.path(), 1 << 24), entry.last_write_time()};
    return files;
  };
  const auto before = contents();
  TrainerOptions options = of_slope();
  record_in(run.folder(), options, 2);  // the same callbacks and loggers
  EXPECT_EQ(replay_slope({.run = run.folder(), .step = 5, .until = 9}, options).confirmed_step, 9);
  EXPECT_TRUE(contents() == before);
}

TEST_P(Replays, SayWhatIsNotChecked) {
  const Scratch run;
  train_slope(run.folder(), 4, of_slope());
  fs::remove(run / "metrics.jsonl");
  std::int64_t start = -1;
  const ReplayResult result = replay_slope({.run = run.folder(),
                                            .step = 6,
                                            .until = 7,
                                            .on_start =
                                                [&](const fs::path& file, std::int64_t step) {
                                                  EXPECT_EQ(file.filename(), "step-00000004.safetensors");
                                                  start = step;
                                                }},
                                           of_slope());
  EXPECT_EQ(start, 4);
  EXPECT_EQ(result.confirmed_step, 4);
  EXPECT_EQ(result.num_records + result.num_digests + result.num_checkpoints, 0);
  EXPECT_EQ(result.next_check, 8);
}

// A sum over the batch, and a step with a second term.
struct SumOfErrors : Slope {
  at::Tensor loss(const at::Tensor& y, const at::Tensor& labels) override { return (y - labels).abs().sum(); }
};
struct Penalized : Slope {
  at::Tensor training_step(const Batch& batch) override {
    return Slope::training_step(batch) + 3 * weight.square().sum() + 1;
  }
};

struct WeightedByLabel : Slope {
  at::Tensor loss(const at::Tensor& y, const at::Tensor& labels) override {
    return weighted({.loss = ((y - labels).abs() * labels).sum() / labels.sum(), .weight = labels.sum()});
  }
};

// The labels of step 2 are 4 and 6.
TEST_P(Replays, HaveTheWeightsOfSampleLosses) {
  const Scratch run;
  TensorData data = ramp(5, 2, 2);
  const ReplayResult result =
      replay(of_slope(), std::make_shared<WeightedByLabel>(), data, {.run = run.folder(), .step = 2});
  const ReplayedBatch& batch = result.steps[0].batches[0];
  ASSERT_TRUE(batch.weights.defined()) << batch.no_losses;
  EXPECT_TRUE(same(batch.weights, at::tensor({4, 6}, at::kDouble)));
  EXPECT_NEAR((batch.weights * batch.losses).sum().item<double>() / 10, result.steps[0].loss, 1e-5);
}

// Batches of 2, 2 and 1 samples.
TEST_P(Replays, HaveWeightsOfSampleLossesOverAllBatchesOfAStep) {
  TrainerOptions options = of_slope();
  options.accumulate_grad_batches = 3;
  const auto expect_mean = [&](std::shared_ptr<Module> model, double total) {
    const Scratch run;
    TensorData data = ramp(5, 2, 2);
    const ReplayedStep step = replay(options, model, data, {.run = run.folder(), .step = 2}).steps.at(0);
    ASSERT_EQ(step.batches.size(), 3U);
    double sum = 0, weights = 0;
    for (const ReplayedBatch& batch : step.batches) {
      ASSERT_TRUE(batch.losses.defined()) << batch.no_losses;
      sum += (batch.weights * batch.losses).nansum().item<double>();
      weights += batch.weights.sum().item<double>();
    }
    EXPECT_EQ(weights, total);
    EXPECT_NEAR(sum / weights, step.loss, 1e-5 * std::abs(step.loss));
  };
  expect_mean(std::make_shared<Slope>(), 5);
  expect_mean(std::make_shared<WeightedByLabel>(), 0 + 2 + 4 + 6 + 8);
}

TEST_P(Replays, ExplainMissingSampleLosses) {
  const auto reason_of = [&](const auto& make) {
    const Scratch run;
    TensorData data = ramp(5, 2, 2);
    return replay(of_slope(), make(), data, {.run = run.folder(), .step = 2}).steps[0].batches[0].no_losses;
  };
  const std::string of_sum = reason_of([] { return std::make_shared<SumOfErrors>(); });
  EXPECT_NE(of_sum.find("is not the mean over its samples"), std::string::npos) << of_sum;
  const std::string of_step = reason_of([] { return std::make_shared<Penalized>(); });
  EXPECT_NE(of_step.find("::training_step() returns"), std::string::npos) << of_step;
}

TEST(ReplayRefusals, NameWhatIsMissing) {
  const Scratch run;
  const TrainerOptions options{.max_epochs = 1, .optimizer = sgd(0.125)};
  TensorData data = ramp(5, 2, 2);
  const auto of = [&](const ReplayOptions& replayed, TrainerOptions trainer) {
    return error_of_replay([&] { replay(trainer, std::make_shared<Slope>(), data, replayed); });
  };
  EXPECT_NE(of({.run = run.folder(), .step = 0}, options).find("a step, at least 1"), std::string::npos);
  EXPECT_NE(of({.run = run.folder(), .step = 3, .until = 2}, options).find("until 2"), std::string::npos);
  EXPECT_NE(of({.run = run / "none", .step = 1}, options).find("no such directory"), std::string::npos);
  EXPECT_NE(of({.run = run.folder(), .step = 4}, options).find("the run ends after step 3"),
            std::string::npos);
}

TEST(ReplayRefusals, OfSeveralProcessesAndOtherBatches) {
  const Scratch run;
  const auto checkpoint = std::make_shared<ModelCheckpoint>(ModelCheckpointOptions{
      .dirpath = run / "checkpoints", .every_n_epochs = 0, .every_n_steps = 2, .keep_last = 10});
  TrainerOptions options{.max_epochs = 2, .optimizer = sgd(0.125), .callbacks = {checkpoint}};
  TensorData data = ramp(5, 2, 2), other = ramp(5, 2, 1);
  Trainer(options).fit(std::make_shared<Slope>(), data);
  const auto error_with = [&](DataModule& of) {
    return error_of_replay(
        [&] { replay(options, std::make_shared<Slope>(), of, {.run = run.folder(), .step = 4}); });
  };
  EXPECT_EQ(error_with(data), "(no error)");
  const std::string position = error_with(other);
  EXPECT_NE(position.find("step 4 ends at batch 4 of epoch 1"), std::string::npos) << position;
  const fs::path newest = run / "checkpoints/step-00000006.safetensors";
  StateDict state = load_checkpoint(newest);
  state.metadata["processes"] = "2";
  save_checkpoint(state, newest);
  const std::string ranks = error_with(data);
  EXPECT_NE(ranks.find("it was trained by 2 ranks"), std::string::npos) << ranks;
}

TEST(ReplayRefusals, OfBatchesFromACustomLoop) {
  const Scratch run;
  const auto checkpoint = std::make_shared<ModelCheckpoint>(
      ModelCheckpointOptions{.dirpath = run / "checkpoints", .every_n_steps = 1});
  const TrainerOptions options{.max_epochs = 1, .optimizer = sgd(0.125), .callbacks = {checkpoint}};
  Trainer trainer(options);
  trainer.prepare_model(std::make_shared<Slope>());
  for (int i = 0; i < 3; ++i) trainer.train_step(trainer.prepare_batch({at::ones({2, 1}), at::ones({2, 1})}));
  checkpoint->finish();
  TensorData data = ramp(5, 2, 2);
  for (const std::int64_t step : {3, 1}) {  // also before the first checkpoint
    const std::string error = error_of_replay(
        [&] { replay(options, std::make_shared<Slope>(), data, {.run = run.folder(), .step = step}); });
    EXPECT_NE(error.find("its batches came from a custom training loop"), std::string::npos) << error;
  }
}

// Rank 0 gets the batches of both, and compares the records.
TEST(ReplaysOfRanks, AreConfirmed) {
  const Scratch run(memory_folder());
  const auto options_of = [](ProcessGroup& group) {
    return TrainerOptions{.max_epochs = 3,
                          .log_every_n_steps = 1,
                          .optimizer = sgd(1e-3),
                          .process_group = std::shared_ptr<ProcessGroup>(std::shared_ptr<void>(), &group)};
  };
  on_ranks(2, [&](ProcessGroup& group) {
    TrainerOptions options = options_of(group);
    record_in(run.folder(), options, 3);
    TensorData data = ramp(20, 0, 2);
    Trainer(options).fit(std::make_shared<Slope>(), data);
  });
  on_ranks(2, [&](ProcessGroup& group) {
    TensorData data = ramp(20, 0, 2);
    const ReplayResult result = replay(options_of(group), std::make_shared<Slope>(), data,
                                       {.run = run.folder(), .step = 8, .until = 13, .keep_state = true});
    EXPECT_EQ(result.start_step, 6);
    EXPECT_EQ(result.steps.size(), 6U);
    EXPECT_EQ(result.progress.global_step, 13);
    EXPECT_FALSE(result.state.tensors.empty());
    const std::vector<ReplayedBatch>& batches = result.steps.at(0).batches;
    ASSERT_EQ(batches.size(), group.rank() == 0 ? 2U : 1U);
    if (group.rank() != 0) return;
    EXPECT_EQ(result.confirmed_step, 13);
    EXPECT_EQ(batches[0].rank, 0);
    EXPECT_EQ(batches[1].rank, 1);
    EXPECT_FALSE(batches[0].indices.equal(batches[1].indices));
    EXPECT_EQ(batches[1].batch.tensors().size(), 2U);
    EXPECT_EQ(batches[1].losses.numel(), 2);
    EXPECT_NEAR(batches[1].losses.mean().item<double>(), batches[1].mean_loss, 1e-6);
  });
  TensorData data = ramp(20, 0, 2);
  const std::string text = error_of_replay([&] {
    replay({.max_epochs = 3, .optimizer = sgd(1e-3)}, std::make_shared<Slope>(), data,
           {.run = run.folder(), .step = 8});
  });
  EXPECT_NE(text.find("it was trained by 2 ranks, and this is a replay on 1"), std::string::npos) << text;
}

}  // namespace
}  // namespace kindling
