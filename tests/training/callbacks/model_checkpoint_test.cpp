#include "kindling/training/model_checkpoint.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <set>
#include <thread>

#include "kindling/base/error.h"
#include "kindling/checkpoint/checkpoint_folder.h"
#include "kindling/tensors/checkpoint_file.h"
#include "support/file_faults.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"
#include "tensors/state_tensors.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

std::set<std::string> files_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename() != ".lock") names.insert(entry.path().filename().string());
  return names;
}

// Does something once at an event.
struct Once : Callback {
  enum class At { step, epoch_end, fit_end, train_epoch_start };
  Once(At at, std::int64_t step, std::function<void(Trainer&, Module&)> act)
      : at_(at), step_(step), act_(std::move(act)) {}
  void on_train_epoch_start(Trainer& trainer, Module& model) override {
    call(At::train_epoch_start, trainer, model);
  }
  void on_train_batch_end(Trainer& trainer, Module& model) override { call(At::step, trainer, model); }
  void on_epoch_end(Trainer& trainer, Module& model, const Record&) override {
    call(At::epoch_end, trainer, model);
  }
  void on_fit_end(Trainer& trainer, Module& model, const FitResult&) override {
    call(At::fit_end, trainer, model);
  }
  void call(At at, Trainer& trainer, Module& model) {
    if (at == at_ && trainer.progress().global_step >= step_ && act_) std::exchange(act_, {})(trainer, model);
  }

 private:
  At at_;
  std::int64_t step_;
  std::function<void(Trainer&, Module&)> act_;
};

// Eight batches an epoch, three epochs.
struct SlopeFit {
  explicit SlopeFit(ModelCheckpointOptions asked)
      : checkpoint(std::make_shared<ModelCheckpoint>(std::move(asked))) {
    options = {.max_epochs = 3,
               .optimizer = sgd(0.01),
               .callbacks = {checkpoint},
               .loggers = {std::make_shared<MemoryLogger>()}};
  }
  void add(Once::At at, std::int64_t step, std::function<void(Trainer&, Module&)> act) {
    options.callbacks.push_back(std::make_shared<Once>(at, step, std::move(act)));
  }
  FitResult fit(const fs::path& resume = {}) { return Trainer(options).fit(model, data, {.resume = resume}); }

  std::shared_ptr<ModelCheckpoint> checkpoint;
  std::shared_ptr<Slope> model = std::make_shared<Slope>();
  TensorData data = ramp(16, 4, 2);
  TrainerOptions options;
};

TEST(ModelCheckpoint, KeepsTheLastAndTheBest) {
  const Scratch scratch(memory_folder());
  SlopeFit fit({.dirpath = scratch / "a", .every_n_steps = 3});
  const FitResult result = fit.fit();
  // The loss falls in every epoch, so that the last one is the best.
  EXPECT_EQ(files_in(scratch / "a"),
            (std::set<std::string>{"step-00000021.safetensors", "step-00000024.safetensors"}));
  EXPECT_EQ(result.best_checkpoint, scratch / "a" / "step-00000024.safetensors");
  EXPECT_EQ(fit.checkpoint->last(), result.best_checkpoint);

  SlopeFit worst({.dirpath = scratch / "b", .keep_best = 1, .monitor = "val_loss", .mode = "max"});
  EXPECT_EQ(worst.fit().best_checkpoint, scratch / "b" / "step-00000008.safetensors");
  EXPECT_EQ(files_in(scratch / "b"),
            (std::set<std::string>{"step-00000008.safetensors", "step-00000016.safetensors",
                                   "step-00000024.safetensors"}));
  const StateDict best = load_checkpoint(worst.checkpoint->best());
  EXPECT_EQ(best.metadata.at("monitor.name"), "val_loss");
  EXPECT_EQ(best.metadata.at("progress.epoch"), "1");
}

TEST(ModelCheckpoint, CarriesTextsOfTheProgram) {
  const Scratch scratch(memory_folder());
  for (const bool is_asynchronous : {false, true}) {
    const fs::path folder = scratch / (is_asynchronous ? "b" : "a");
    SlopeFit fit({.dirpath = folder, .asynchronous = is_asynchronous});
    fit.checkpoint->set_metadata({{"config", "lr = 0.01\n"}, {"progress.epoch", "77"}});
    fit.fit();
    const StateDict saved = load_checkpoint(folder);
    EXPECT_EQ(saved.metadata.at("program.config"), "lr = 0.01\n");
    EXPECT_EQ(saved.metadata.at("program.progress.epoch"), "77");
    fit.options.max_epochs = 4;
    EXPECT_EQ(fit.fit(fit.checkpoint->last()).progress.epoch, 4);
  }
}

TEST(ModelCheckpoint, TakesItsLockAgainOrStops) {
  const Scratch scratch(memory_folder());
  SlopeFit fit({.dirpath = scratch / "a"});
  fit.add(Once::At::step, 9, [&](Trainer&, Module&) { fs::remove(scratch / "a/.lock"); });
  fit.fit();
  EXPECT_TRUE(fs::exists(scratch / "a/.lock"));

  SlopeFit other({.dirpath = scratch / "b"});
  std::optional<FolderLock> taken;
  other.add(Once::At::step, 9, [&](Trainer&, Module&) {
    fs::remove(scratch / "b/.lock");
    taken.emplace(scratch / "b");
  });
  const std::string text = error_text<CheckpointError>([&] { other.fit(); });
  EXPECT_NE(text.find("is using this folder"), std::string::npos) << text;
}

TEST(ModelCheckpoint, SavesOnRequest) {
  const Scratch scratch(memory_folder());
  SlopeFit fit({.dirpath = scratch / "a", .every_n_epochs = 0});
  fit.add(Once::At::step, 5, [&](Trainer&, Module&) { fit.checkpoint->request_save(); });
  fit.fit();
  EXPECT_EQ(files_in(scratch / "a"),  // and at the end
            (std::set<std::string>{"step-00000005.safetensors", "step-00000024.safetensors"}));
  SlopeFit often({.dirpath = scratch / "b", .every_n_epochs = 0, .every_minutes = 1e-9, .keep_last = 100});
  often.fit();
  EXPECT_EQ(files_in(scratch / "b").size(), 24u);
  SlopeFit seldom({.dirpath = scratch / "c", .every_n_epochs = 2, .every_minutes = 1e9, .keep_last = 100});
  seldom.fit();
  EXPECT_EQ(files_in(scratch / "c").size(), 2u);
}

TEST(ModelCheckpoint, IsWrittenBeforeOtherCallbacksChangeTheModelAtTheEnd) {
  const Scratch scratch(memory_folder());
  SlopeFit fit({.dirpath = scratch / "a", .every_n_epochs = 0});
  at::Tensor at_the_end;
  fit.add(Once::At::fit_end, 0, [&](Trainer&, Module&) {
    at_the_end = fit.model->weight.detach().clone();
    at::NoGradGuard no_grad;
    fit.model->weight.zero_();
  });
  fit.fit();
  EXPECT_TRUE(same(*load_checkpoint(scratch / "a").find("model.weight"), at_the_end));
}

TEST(ModelCheckpoint, EndsTheFitOnAWriteErrorOnlyIfAsked) {
  for (const bool asynchronous : {false, true})
    for (const std::string on_error : {"stop", "continue"}) {
      const Scratch scratch(memory_folder());
      SlopeFit fit(
          {.dirpath = scratch / "a", .every_n_steps = 2, .on_error = on_error, .asynchronous = asynchronous});
      fit.add(Once::At::step, 7, [&](Trainer&, Module&) { fs::rename(scratch / "a", scratch / "away"); });
      if (on_error == "stop") {
        const std::string error = error_text<Error>([&] { fit.fit(); });
        EXPECT_NE(error.find((scratch / "a").string()), std::string::npos) << error;
        EXPECT_LE(fit.model->train_sizes.size(), asynchronous ? 23u : 8u);
      } else {
        EXPECT_EQ(fit.fit().progress.epoch, 3);
        EXPECT_FALSE(fs::exists(scratch / "a" / "step-00000024.safetensors"));
      }
    }
}

TEST(ModelCheckpoint, RefusesTheFolderOfAnotherRun) {
  const Scratch scratch(memory_folder());
  SlopeFit first({.dirpath = scratch / "a"}), second({.dirpath = scratch / "a"});
  first.fit();
  const auto before = files_in(scratch / "a");
  const std::string error = error_text<CheckpointError>([&] { second.fit(); });
  EXPECT_NE(error.find("another run"), std::string::npos) << error;
  EXPECT_TRUE(second.model->train_sizes.empty());
  EXPECT_EQ(files_in(scratch / "a"), before);
  // The same run may resume there, from last().
  EXPECT_EQ(second.fit(second.checkpoint->last()).progress.epoch, 3);
  EXPECT_EQ(SlopeFit({.dirpath = scratch / "none"}).checkpoint->last(), fs::path());
}

TEST(ModelCheckpoint, RefusesASecondOneInItsFolder) {
  const Scratch scratch(memory_folder());
  SlopeFit fit({.dirpath = scratch / "a"});
  fit.options.callbacks.push_back(
      std::make_shared<ModelCheckpoint>(ModelCheckpointOptions{.dirpath = scratch / "a"}));
  const std::string error = error_text<Error>([&] { fit.fit(); });
  EXPECT_NE(error.find((scratch / "a").string()), std::string::npos) << error;
  EXPECT_TRUE(fit.model->train_sizes.empty());
}

TEST(ModelCheckpoint, SavesTheLatestCompleteStepAfterAnError) {
  // An error between two steps leaves a state to resume from.
  struct BrokenData : TensorData {
    using TensorData::TensorData;
    Batch on_after_batch_transfer(Batch batch) override {
      if (++num_batches == 2 + 5) throw DataError({.place = "batch 5", .found = "a gap"});  // 2 of the sanity
      return batch;
    }
    std::int64_t num_batches = 0;
  };
  const Scratch scratch(memory_folder());
  {
    SlopeFit fit({.dirpath = scratch / "data", .every_n_steps = 3});
    const TensorData parts = ramp(16, 4, 2);
    const at::Tensor x = at::arange(16, at::kFloat).unsqueeze(1);
    BrokenData data({x, 2 * x}, {x.narrow(0, 0, 4), 2 * x.narrow(0, 0, 4)},
                    {.batch_size = 2, .shuffle = false});
    EXPECT_THROW(Trainer(fit.options).fit(fit.model, data), DataError);
    EXPECT_EQ(files_in(scratch / "data"),
              (std::set<std::string>{"step-00000003.safetensors", "step-00000004.safetensors"}));
    SlopeFit rest({.dirpath = scratch / "data"}), whole({.dirpath = scratch / "whole"});
    rest.fit(scratch / "data");
    whole.fit();
    EXPECT_TRUE(same(rest.model->weight, whole.model->weight));
  }
  // Within a step, or between callbacks, the parts of the state are inconsistent.
  struct Thrower : Slope {
    at::Tensor training_step(const Batch& batch) override {
      if (train_sizes.size() == 4) throw std::runtime_error("in the step");
      return Slope::training_step(batch);
    }
  };
  SlopeFit step({.dirpath = scratch / "step", .every_n_steps = 3});
  step.model = std::make_shared<Thrower>();
  EXPECT_THROW(step.fit(), std::runtime_error);
  EXPECT_EQ(files_in(scratch / "step"), (std::set<std::string>{"step-00000003.safetensors"}));
  SlopeFit callback({.dirpath = scratch / "callback", .every_n_steps = 3});
  callback.add(Once::At::step, 4, [](Trainer&, Module&) { throw std::runtime_error("in a callback"); });
  EXPECT_THROW(callback.fit(), std::runtime_error);
  EXPECT_EQ(files_in(scratch / "callback"), (std::set<std::string>{"step-00000003.safetensors"}));
}

TEST(ModelCheckpoint, SavesAndFinishesInACustomLoop) {
  const Scratch scratch(memory_folder());
  for (const bool asynchronous : {false, true}) {
    const fs::path folder = scratch / (asynchronous ? "async" : "sync");
    SlopeFit fit({.dirpath = folder, .every_n_steps = 3, .asynchronous = asynchronous});
    Trainer trainer(fit.options);
    trainer.prepare_data(fit.data);
    trainer.prepare_model(fit.model);
    while (!trainer.is_done()) {
      for (const Batch& batch : trainer.train_batches()) trainer.train_step(batch);
      trainer.finish_epoch();
    }
    fit.checkpoint->finish();
    EXPECT_EQ(files_in(folder).size(), 2u);
    EXPECT_TRUE(files_in(folder).contains("step-00000024.safetensors"));
    EXPECT_TRUE(asynchronous || files_in(folder).contains("step-00000021.safetensors"));
  }
}

// The disk takes as long as the whole run for one file: steps continue without a wait, and a save that
// becomes due meanwhile is made after the last step.
TEST(ModelCheckpoint, NeverBlocksStepsWhenAsynchronous) {
  struct Stuck : FileOperations {
    int fsync(int file) override {
      for (int tries = 0; !may_go_on && std::this_thread::get_id() != training; ++tries) {
        ::usleep(1000);
        if (tries == 5000) may_go_on = had_to_wait = true;
      }
      return FileOperations::fsync(file);
    }
    const std::thread::id training = std::this_thread::get_id();
    std::atomic<bool> may_go_on = false, had_to_wait = false;
  } operations;
  const Scratch scratch(memory_folder());
  const ScopedFileOperations in_force(operations);
  SlopeFit fit({.dirpath = scratch / "a", .every_n_epochs = 0, .every_n_steps = 1, .asynchronous = true});
  fit.add(Once::At::step, 7, [&](Trainer&, Module&) { operations.may_go_on = true; });
  fit.fit();
  EXPECT_FALSE(operations.had_to_wait);
  EXPECT_TRUE(files_in(scratch / "a").contains("step-00000024.safetensors"));
}

TEST(ModelCheckpoint, SeparatesTheRunsOfCustomLoops) {
  const Scratch scratch(memory_folder());
  SlopeFit fit({.dirpath = scratch / "a", .every_n_steps = 1});
  Trainer trainer(fit.options);
  trainer.prepare_data(fit.data);
  trainer.prepare_model(fit.model);
  trainer.fit_epoch();
  const auto before = files_in(scratch / "a");
  trainer.prepare_model(fit.model);
  EXPECT_THROW(trainer.fit_epoch(), CheckpointError);
  EXPECT_EQ(files_in(scratch / "a"), before);
}

TEST(ModelCheckpoint, SetsLaterCheckpointsAsideOnResume) {
  const Scratch scratch(memory_folder());
  SlopeFit fit({.dirpath = scratch / "a", .keep_last = 10}),
      again({.dirpath = scratch / "a", .keep_last = 10});
  fit.fit();
  again.add(Once::At::train_epoch_start, 0, [&](Trainer&, Module&) {
    EXPECT_EQ(files_in(scratch / "a"),
              (std::set<std::string>{"step-00000008.safetensors", "step-00000016.safetensors.set_aside",
                                     "step-00000024.safetensors.set_aside"}));
  });
  again.fit(scratch / "a" / "step-00000008.safetensors");
  EXPECT_EQ(files_in(scratch / "a").size(), 5u);
  EXPECT_TRUE(same(again.model->weight, fit.model->weight));
}

TEST(ModelCheckpoint, RefusesInvalidOptions) {
  const Scratch scratch(memory_folder());
  const std::string mode =
      error_text<ConfigError>([&] { SlopeFit({.dirpath = scratch / "a", .monitor = "my_value"}).fit(); });
  EXPECT_NE(mode.find("mode"), std::string::npos) << mode;
  EXPECT_THROW(ModelCheckpoint({.keep_last = 1}), ConfigError);
  EXPECT_THROW(ModelCheckpoint({.on_error = "ignore"}), ConfigError);
  EXPECT_THROW(ModelCheckpoint({.mode = "larger"}), ConfigError);
}

TEST(Training, IsNotSavedWithinAStep) {
  struct Saver : Slope {
    at::Tensor training_step(const Batch& batch) override {
      error = error_text<Error>([&] { saver->state_dict(); });
      return Slope::training_step(batch);
    }
    Trainer* saver = nullptr;
    std::string error;
  };
  TensorData data = ramp(4, 0, 2);
  const auto model = std::make_shared<Saver>();
  Trainer trainer({.max_epochs = 1, .optimizer = sgd(0.1)});
  model->saver = &trainer;
  trainer.fit(model, data);
  EXPECT_NE(model->error.find("between two steps"), std::string::npos) << model->error;
  EXPECT_EQ(trainer.state_dict().metadata.at("progress.global_step"), "2");
  EXPECT_EQ(trainer.state_dict().metadata.at("run_id"), trainer.run_id());
}

TEST(StateCopy, IsIndependentAndReusesItsMemory) {
  const at::Tensor live = at::arange(6, at::kFloat);
  StateCopy copy;
  copy.take({.tensors = {{"a", live}, {"b", at::ones({2})}}, .metadata = {{"step", "1"}}});
  const void* const memory = copy.state().find("a")->const_data_ptr();
  live.add_(1);
  EXPECT_TRUE(same(*copy.state().find("a"), at::arange(6, at::kFloat)));
  copy.take({.tensors = {{"a", live}, {"b", at::ones({3})}}, .metadata = {{"step", "2"}}});
  EXPECT_EQ(copy.state().find("a")->const_data_ptr(), memory);
  EXPECT_TRUE(same(*copy.state().find("a"), live));
  EXPECT_TRUE(same(*copy.state().find("b"), at::ones({3})));
  EXPECT_EQ(copy.state().metadata.at("step"), "2");
}

TEST(StateCopy, HoldsTheValuesOfEveryLayoutAndSize) {
  const at::Tensor in_rows = at::arange(6, at::kFloat).view({2, 3});
  const at::Tensor in_columns = at::arange(6, at::kFloat).view({3, 2}).t();
  const auto take_both = [](const at::Tensor& first, const at::Tensor& then) {
    StateCopy copy;
    copy.take({.tensors = {{"a", first}}, .metadata = {}});
    copy.take({.tensors = {{"a", then}}, .metadata = {}});
    return same(*copy.state().find("a"), then);
  };
  EXPECT_TRUE(take_both(in_rows, in_columns));
  EXPECT_TRUE(take_both(in_columns, in_rows));
  EXPECT_TRUE(take_both(in_columns, in_columns + 1));
  EXPECT_TRUE(take_both(at::zeros({100'000}), at::ones({100'000})));
  EXPECT_TRUE(take_both(at::empty({0}), at::empty({0})));
}

}  // namespace
}  // namespace kindling
