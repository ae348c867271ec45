// Positions where a stop, an error or a second run could change a resumed run.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "base/file_operations.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/data/sampler.h"
#include "kindling/loggers/jsonl_logger.h"
#include "kindling/tensors/checkpoint_file.h"
#include "kindling/tensors/move.h"
#include "kindling/training/model_checkpoint.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"
#include "training/loop/confusion.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

struct AtMoments : Callback {
  std::function<void(Trainer&)> batch_end, validation_start;
  void on_train_batch_end(Trainer& trainer, Module&) override {
    ++num_batches;
    if (batch_end) batch_end(trainer);
  }
  void on_validation_start(Trainer& trainer, Module&) override {
    if (validation_start) validation_start(trainer);
  }
  void save_state(StateDict& state) const override { state.metadata["n"] = std::to_string(num_batches); }
  void load_state(const StateDict& state) override {
    if (refuses) throw std::runtime_error("not this one");
    num_batches = std::stoll(state.metadata.at("n"));
  }
  std::int64_t num_batches = 0;
  bool refuses = false;
};

// One session of a run with eight batches per epoch.
struct EdgeFit {
  EdgeFit(const std::filesystem::path& folder, std::int64_t epochs, ModelCheckpointOptions asked = {}) {
    asked.dirpath = folder;
    checkpoint = std::make_shared<ModelCheckpoint>(asked);
    options = {.max_epochs = epochs,
               .optimizer = sgd(0.01),
               .callbacks = {moments, checkpoint},
               .loggers = {logger}};
  }
  FitResult fit() { return Trainer(options).fit(model, data, {.resume = checkpoint->last()}); }
  // As the page on checkpoints has it.
  void own_loop() {
    Trainer trainer(options);
    trainer.prepare_data(data);
    trainer.prepare_model(model);
    if (!checkpoint->last().empty()) trainer.load_state_dict(load_checkpoint(checkpoint->last()));
    while (!trainer.is_done()) {
      for (const Batch& batch : trainer.train_batches()) trainer.train_step(batch);
      trainer.finish_epoch();
    }
    checkpoint->finish();
  }
  double logged(const std::string& name) const { return value_of(logger->records().back(), name); }

  std::shared_ptr<AtMoments> moments = std::make_shared<AtMoments>();
  std::shared_ptr<ModelCheckpoint> checkpoint;
  std::shared_ptr<MemoryLogger> logger = std::make_shared<MemoryLogger>();
  std::shared_ptr<Slope> model = std::make_shared<Slope>();
  TensorData data = ramp(16, 4, 2);
  TrainerOptions options;
};

// The fifth batch is not finite.
TensorData data_with_nan() {
  const at::Tensor x = at::arange(16, at::kFloat).unsqueeze(1);
  at::Tensor inputs = x.clone();
  inputs[8] = std::nan("");
  return {{inputs, 2 * x}, {}, {.batch_size = 2, .shuffle = false}};
}

std::function<void(Trainer&)> stop_at(std::int64_t step) {
  return [step](Trainer& trainer) {
    if (trainer.progress().global_step == step) trainer.request_stop();
  };
}

struct DrawingSlope : Slope {
  void validation_step(const Batch& batch) override {
    if (stops) stop.request_stop();
    log("val_drawn", at::rand({1}));
    Slope::validation_step(batch);
  }
  StopToken stop;
  bool stops = false;
};

TEST(ResumeEdges, AStopDoesNotHideADivergence) {
  const Scratch scratch(memory_folder());
  EdgeFit fit(scratch / "a", 2);
  fit.data = data_with_nan();
  fit.moments->batch_end = stop_at(7);
  const FitResult result = fit.fit();
  EXPECT_EQ(result.status, FitStatus::diverged);
  EXPECT_EQ(result.diverged_step, 5);
  EXPECT_EQ(fit.checkpoint->last(), std::filesystem::path());
}

TEST(ResumeEdges, ADivergedRunHasNoStateDict) {
  const Scratch scratch(memory_folder());
  EdgeFit fit(scratch / "a", 2, {.every_n_steps = 2});
  fit.data = data_with_nan();
  Trainer trainer(fit.options);
  trainer.prepare_data(fit.data);
  trainer.prepare_model(fit.model);
  for (const Batch& batch : trainer.train_batches()) trainer.train_step(batch);
  EXPECT_EQ(fit.checkpoint->last().filename(), "step-00000004.safetensors");
  const std::string error = error_text<CheckpointError>([&] { trainer.state_dict(); });
  EXPECT_NE(error.find("diverged at step 5"), std::string::npos) << error;
}

// Steps after a divergence change nothing, so a loop that continues must be notified at its next report.
TEST(ResumeEdges, AResetStopDoesNotHideADivergence) {
  const Scratch scratch(memory_folder());
  EdgeFit fit(scratch / "a", 3);
  fit.data = data_with_nan();
  Trainer trainer(fit.options);
  trainer.prepare_data(fit.data);
  trainer.prepare_model(fit.model);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (const Batch& batch : trainer.train_batches()) trainer.train_step(batch);
    trainer.finish_epoch();
    EXPECT_TRUE(trainer.is_done()) << epoch;
    EXPECT_EQ(trainer.stop_token().reason(), FitReason::diverged) << epoch;
    trainer.stop_token().reset();
    EXPECT_FALSE(trainer.is_done()) << epoch;
  }
}

// Its guard would skip all steps after the loaded state, too.
void expect_load_refused_after_divergence(bool finishes_epoch) {
  const Scratch scratch(memory_folder());
  EdgeFit fit(scratch / "a", 3);
  Trainer trainer(fit.options);
  trainer.prepare_data(fit.data);
  trainer.prepare_model(fit.model);
  save_checkpoint(trainer.state_dict(), scratch / "start.safetensors");
  const StateDict start = load_checkpoint(scratch / "start.safetensors");
  const at::Tensor weight = fit.model->parameters()[0].detach().clone();
  TensorData poisoned = data_with_nan();
  trainer.prepare_data(poisoned);
  for (const Batch& batch : trainer.train_batches()) trainer.train_step(batch);
  if (finishes_epoch) trainer.finish_epoch();
  trainer.stop_token().reset();
  const std::string error = error_text<Error>([&] { trainer.load_state_dict(start); });
  EXPECT_NE(error.find("diverged at step 5"), std::string::npos) << error;
  trainer.prepare_data(fit.data);
  trainer.prepare_model(fit.model);
  trainer.load_state_dict(start);
  EXPECT_TRUE(same(fit.model->parameters()[0], weight));
  for (const Batch& batch : trainer.train_batches()) trainer.train_step(batch);
  trainer.finish_epoch();
  EXPECT_FALSE(trainer.is_done());
  EXPECT_FALSE(same(fit.model->parameters()[0], weight));
}

TEST(ResumeEdges, ADivergedRunLoadsAStateOnlyAfterItWasPreparedAgain) {
  expect_load_refused_after_divergence(/*finishes_epoch=*/true);
  expect_load_refused_after_divergence(/*finishes_epoch=*/false);
}

TEST(ResumeEdges, AStopInACustomLoopLeavesTheEpochOpen) {
  const Scratch scratch(memory_folder());
  EdgeFit whole(scratch / "whole", 2), first(scratch / "a", 2, {.every_n_steps = 1}),
      second(scratch / "a", 2, {.every_n_steps = 1});
  whole.own_loop();
  first.moments->batch_end = stop_at(3);
  first.own_loop();
  EXPECT_TRUE(first.logger->records().empty());
  second.own_loop();
  EXPECT_TRUE(same(second.model->weight, whole.model->weight));
  ASSERT_EQ(second.logger->records().size(), 2u);
  EXPECT_EQ(numbers_of(second.logger->records()[0]), numbers_of(whole.logger->records()[0]));
}

TEST(ResumeEdges, ALoggerThatThrowsLeavesNoPartialRecord) {
  struct FailsOnce : Logger {
    void write(const Record& record) override {
      if (record.kind == Record::Kind::step && record.global_step == 5) throw std::runtime_error("network");
    }
  };
  const Scratch scratch(memory_folder());
  EdgeFit first(scratch / "a", 1, {.every_n_steps = 2}), second(scratch / "a", 1, {.every_n_steps = 2});
  first.options.log_every_n_steps = second.options.log_every_n_steps = 1;
  second.options.loggers = first.options.loggers;
  first.options.loggers.push_back(std::make_shared<FailsOnce>());
  EXPECT_THROW(first.fit(), std::runtime_error);
  EXPECT_EQ(first.checkpoint->last().filename(), "step-00000004.safetensors");
  second.fit();
  EXPECT_EQ(second.moments->num_batches, 8);
  ASSERT_EQ(first.logger->records().size(), 9u);
  for (std::int64_t i = 0; i < 8; ++i)
    EXPECT_EQ(first.logger->records()[static_cast<std::size_t>(i)].global_step, i + 1);
}

TEST(ResumeEdges, APartiallyLoadedStateIsNotSaved) {
  const Scratch scratch(memory_folder());
  EdgeFit first(scratch / "a", 1), second(scratch / "b", 2);
  first.fit();
  second.moments->refuses = true;
  EXPECT_THROW(Trainer(second.options).fit(second.model, second.data, {.resume = first.checkpoint->last()}),
               std::runtime_error);
  EXPECT_EQ(second.checkpoint->last(), std::filesystem::path());
}

TEST(ResumeEdges, LoggedValuesBelongToTheirModel) {
  const Scratch scratch(memory_folder());
  EdgeFit first(scratch / "a", 1), second(scratch / "a", 2);
  {
    Trainer trainer(first.options);
    TensorData others = eleven_answers(false);
    trainer.prepare_data(others);
    trainer.prepare_model(std::make_shared<Echo>());
    trainer.fit(first.model, first.data);
  }
  EXPECT_EQ(second.fit().progress.epoch, 2);
}

TEST(ResumeEdges, ValuesThatACallbackLogsAfterAStepAreSaved) {
  const Scratch scratch(memory_folder());
  EdgeFit whole(scratch / "whole", 1), killed(scratch / "a", 1, {.every_n_steps = 3}),
      stopped(scratch / "b", 1), after_kill(scratch / "a", 1), after_stop(scratch / "b", 1);
  const auto log_step = [](Trainer& trainer) {
    trainer.log("seen", static_cast<double>(trainer.progress().global_step));
    trainer.log("twice", at::full({1}, 2. * static_cast<double>(trainer.progress().global_step)));
  };
  for (EdgeFit* fit : {&whole, &after_kill, &after_stop}) fit->moments->batch_end = log_step;
  killed.moments->batch_end = [&](Trainer& trainer) {
    log_step(trainer);
    if (trainer.progress().global_step == 5) throw std::runtime_error("killed");
  };
  stopped.moments->batch_end = [&](Trainer& trainer) {
    log_step(trainer);
    stop_at(5)(trainer);
  };
  whole.fit();
  EXPECT_THROW(killed.fit(), std::runtime_error);
  stopped.fit();
  for (EdgeFit* rest : {&after_kill, &after_stop}) {
    rest->fit();
    EXPECT_EQ(rest->logged("seen"), whole.logged("seen"));
    EXPECT_EQ(rest->logged("twice"), whole.logged("twice"));
    EXPECT_EQ(rest->logged("train_loss"), whole.logged("train_loss"));
  }
}

TEST(ResumeEdges, ValidationsDrawTheSameNumbersAfterAnyStop) {
  // With 2 the stop comes in the sanity check, or before the fit.
  for (const auto& [sanity, is_before] : {std::pair<std::int64_t, bool>{0, false}, {2, false}, {2, true}}) {
    const Scratch scratch(memory_folder());
    double whole = 0;
    for (const int part : {0, 1, 2}) {
      at::manual_seed(1);
      EdgeFit fit(scratch / (part == 0 ? "whole" : "a"), 1);
      fit.options.num_sanity_val_steps = sanity;
      fit.moments->validation_start = [](Trainer&) { at::rand({3}); };
      const auto model = std::make_shared<DrawingSlope>();
      Trainer trainer(fit.options);
      model->stop = trainer.stop_token();
      model->stops = part == 1 && !is_before;
      if (part == 1 && is_before) trainer.request_stop();
      trainer.fit(model, fit.data, {.resume = fit.checkpoint->last()});
      if (part == 0) whole = fit.logged("val_drawn");
      if (part == 2) {
        EXPECT_EQ(fit.logged("val_drawn"), whole) << sanity;
      }
    }
  }
}

TEST(ResumeEdges, AFailedLastSaveIsRepeated) {
  struct FailsOnce : FileOperations {
    int rename(const char* from, const char* to) override {
      if (!std::string_view(to).ends_with("step-00000008.safetensors") || --left < 0)
        return FileOperations::rename(from, to);
      errno = EIO;
      return -1;
    }
    int left = 1;
  };
  for (const bool asynchronous : {false, true}) {
    const Scratch scratch(memory_folder());
    FailsOnce operations;
    const ScopedFileOperations in_force(operations);
    EdgeFit fit(scratch / "a", 1, {.on_error = "continue", .asynchronous = asynchronous});
    fit.fit();
    EXPECT_EQ(fit.checkpoint->last().filename(), "step-00000008.safetensors") << asynchronous;
  }
}

TEST(ResumeEdges, ResumingWaitsForARunningSave) {
  struct Slow : FileOperations {
    int fsync(int file) override {
      ::usleep(50'000);
      return FileOperations::fsync(file);
    }
  } operations;
  const Scratch scratch(memory_folder());
  const ScopedFileOperations in_force(operations);
  EdgeFit fit(scratch / "a", 1, {.every_n_steps = 2, .keep_last = 5, .asynchronous = true});
  Trainer trainer(fit.options);
  trainer.prepare_data(fit.data);
  trainer.prepare_model(fit.model);
  for (const Batch& batch : trainer.train_batches()) {
    trainer.train_step(batch);
    if (trainer.progress().global_step == 4) break;
    while (trainer.progress().global_step == 2 && fit.checkpoint->last().empty()) ::usleep(1000);
  }
  trainer.load_state_dict(load_checkpoint(scratch / "a" / "step-00000002.safetensors"));
  fit.checkpoint->finish();
  EXPECT_EQ(fit.checkpoint->last().filename(), "step-00000002.safetensors");
}

TEST(ResumeEdges, OnlyTheLastOfTwoRunsInAFileIsCutBack) {
  const Scratch scratch(memory_folder());
  const Record lines[] = {{.kind = Record::Kind::step, .global_step = 1, .epoch = 1},
                          {.global_step = 2, .epoch = 1},
                          {.global_step = 4, .epoch = 2},
                          {.kind = Record::Kind::step, .global_step = 1, .epoch = 1},
                          {.global_step = 2, .epoch = 1},
                          {.global_step = 4, .epoch = 2}};
  std::uintmax_t expected = 0;
  for (const Record& line : lines) {
    JsonlLogger(scratch / "lines").write(line);
    if (&line == &lines[4]) expected = std::filesystem::file_size(scratch / "lines");
  }
  JsonlLogger(scratch / "lines").resume_at({.epoch = 1, .global_step = 2});
  EXPECT_EQ(std::filesystem::file_size(scratch / "lines"), expected);
}

// Another order for each call, or the same one.
struct CountedOrders : Sampler {
  explicit CountedOrders(bool is_steady) : is_steady(is_steady) {}
  std::int64_t size() const override { return 16; }
  at::Tensor order(std::int64_t epoch) const override {
    return shuffled_order(16, is_steady ? 0 : num_calls++, epoch);
  }
  const bool is_steady;
  mutable std::int64_t num_calls = 100;
};

// Two samples per batch, in the order of the options.
struct OrderedData : DataModule {
  explicit OrderedData(DataLoaderOptions options) : options(std::move(options)) {
    this->options.batch_size = 2;
  }
  std::shared_ptr<DataLoader> train_dataloader() override {
    const at::Tensor x = at::arange(16, at::kFloat).unsqueeze(1);
    return std::make_shared<DataLoader>(std::make_shared<TensorDataset>(std::vector<at::Tensor>{x, 2 * x}),
                                        options);
  }
  DataLoaderOptions options;
};

// Trains three batches of the epoch and returns the state.
StateDict state_within_epoch(OrderedData& data) {
  Trainer trainer({.max_epochs = 2, .optimizer = sgd(0.01)});
  trainer.prepare_data(data);
  trainer.prepare_model(std::make_shared<Slope>());
  for (const Batch& batch : trainer.train_batches()) {
    trainer.train_step(batch);
    if (trainer.progress().batch == 3) break;
  }
  return copy_to(trainer.state_dict(), cpu());
}

void resume_within_epoch(OrderedData& data, const StateDict& state) {
  Trainer trainer({.max_epochs = 1, .optimizer = sgd(0.01)});
  trainer.prepare_data(data);
  trainer.prepare_model(std::make_shared<Slope>());
  trainer.load_state_dict(state);
  for (const Batch& batch : trainer.train_batches()) trainer.train_step(batch);
  EXPECT_EQ(trainer.progress().batch, 8);
}

TEST(ResumedOrder, IsThatOfTheSavedRunOrRefused) {
  const auto sampler = std::make_shared<CountedOrders>(false);
  OrderedData steady({.sampler = std::make_shared<CountedOrders>(true)}), changing({.sampler = sampler}),
      shuffled({.shuffle = true}), mixed({.shuffle = true, .order_seed = "mixed"}), in_order({});
  for (OrderedData* data : {&steady, &shuffled, &mixed, &in_order})
    EXPECT_NO_THROW(resume_within_epoch(*data, state_within_epoch(*data)));
  const StateDict state = state_within_epoch(changing);
  EXPECT_EQ(error_text<CheckpointError>([&] { resume_within_epoch(changing, state); }),
            "the training data in epoch 1: the order of the 16 samples differs from that of the saved run; "
            "expected: the "
            "same order, because the run was saved within the epoch; resume with the same seed, order_seed, "
            "sampler, and labels or weights that it draws by, and let Sampler::order() depend on the epoch "
            "alone; or resume from the end of an epoch");
  EXPECT_THROW(resume_within_epoch(mixed, state_within_epoch(shuffled)), CheckpointError);
  StateDict of_older_version = state;
  EXPECT_EQ(of_older_version.metadata.erase("progress.order"), 1u);
  EXPECT_NO_THROW(resume_within_epoch(changing, of_older_version));
}

TEST(ResumedOrder, OfASecondLoopWithinAnEpochIsThatOfTheFirst) {
  OrderedData changing({.sampler = std::make_shared<CountedOrders>(false)});
  Trainer trainer({.max_epochs = 1, .optimizer = sgd(0.01)});
  trainer.prepare_data(changing);
  trainer.prepare_model(std::make_shared<Slope>());
  for (const Batch& batch : trainer.train_batches()) {
    trainer.train_step(batch);
    break;
  }
  EXPECT_EQ(
      error_text<DataError>([&] { trainer.train_batches().begin(); }),
      "Sampler::order in epoch 1: it has returned two orders for the same epoch; expected: a function of the "
      "epoch alone, so that each rank, each shard and a resumed run take the same samples; draw from a "
      "generator that is seeded with a fixed seed and the epoch");
}

}  // namespace
}  // namespace kindling
