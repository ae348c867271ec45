// Saves requested on one rank: all ranks make them after the same step.
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <set>

#include "kindling/base/error.h"
#include "kindling/checkpoint/checkpoint_folder.h"
#include "kindling/training/model_checkpoint.h"
#include "support/file_faults.h"
#include "support/scratch.h"
#include "training/parallel/rank_runs.h"
#include "training/step/nonfinite_fit.h"
#include "training/step/point_gan.h"

namespace kindling {
namespace {

// The steps that have checkpoints, except for the last one.
std::set<std::int64_t> saved_steps(const std::filesystem::path& folder) {
  std::set<std::int64_t> steps;
  for (const CheckpointInfo& info : list_checkpoints(folder)) steps.insert(info.global_step);
  if (!steps.empty()) steps.erase(*steps.rbegin());
  return steps;
}

// Requests a save within a training step, after this many batches.
template <class Base>
struct Asking : Base {
  using Base::Base;
  at::Tensor training_step(const Batch& batch) override {
    if (num_batches++ == asks_at && checkpoint != nullptr) checkpoint->request_save();
    return Base::training_step(batch);
  }
  std::int64_t num_batches = 0, asks_at = -1;
  std::shared_ptr<ModelCheckpoint> checkpoint;
};

struct AskingMlp : Asking<Mlp> {
  AskingMlp() : Asking<Mlp>(MlpOptions{.hidden = {16}}) { forward(at::zeros({1, 100})); }
};

using ChangeOptions = std::function<void(TrainerOptions&, std::int64_t)>;

// The last of `size` ranks requests a save in batch `asks_at`.
std::vector<RankRun> run_asking(std::int64_t size, std::int64_t asks_at, ModelCheckpointOptions options,
                                const ChangeOptions& change = {}) {
  std::vector<std::shared_ptr<AskingMlp>> models;
  options.every_n_epochs = 0;
  options.keep_last = 100;
  return run_ranks(
      size,
      [&](TrainerOptions& of, std::int64_t rank) {
        const auto checkpoint = std::make_shared<ModelCheckpoint>(options);
        of.callbacks = {checkpoint};
        if (rank == size - 1) {
          models[static_cast<std::size_t>(rank)]->asks_at = asks_at;
          models[static_cast<std::size_t>(rank)]->checkpoint = checkpoint;
        }
        if (change) change(of, rank);
      },
      [&] { return models.emplace_back(std::make_shared<AskingMlp>()); });
}

using Steps = std::set<std::int64_t>;

// An epoch has five steps.
TEST(AskedSaves, AreMadeByAllRanksAfterTheStepOfTheRequest) {
  const Scratch scratch(memory_folder());
  int i = 0;
  const auto folder = [&] { return scratch / std::to_string(i); };
  for (const std::int64_t size : {2, 3})
    for (const bool asynchronous : {false, true}) {
      ++i;
      run_asking(size, 6, {.dirpath = folder(), .asynchronous = asynchronous});
      EXPECT_EQ(saved_steps(folder()), Steps{7}) << size;
    }
  // Also if the interval has passed on one rank only.
  ++i;
  const auto by_clock = [&](TrainerOptions& options, std::int64_t rank) {
    options.callbacks = {std::make_shared<ModelCheckpoint>(
        ModelCheckpointOptions{.dirpath = folder(),
                               .every_n_epochs = 0,
                               .every_minutes = rank == 1 ? std::optional(1e-9) : std::nullopt,
                               .keep_last = 100})};
  };
  run_ranks(2, by_clock);
  EXPECT_EQ(saved_steps(folder()).size(), 14U);
}

TEST(AskedSaves, WaitForTheEndOfAWindow) {
  const Scratch scratch(memory_folder());
  for (const std::int64_t asks_at : {2, 3}) {
    const auto folder = scratch / std::to_string(asks_at);
    run_asking(2, asks_at, {.dirpath = folder},
               [](TrainerOptions& options, std::int64_t) { options.accumulate_grad_batches = 2; });
    EXPECT_EQ(saved_steps(folder), Steps{2}) << asks_at;
  }
}

TEST(AskedSaves, WorkWithGradientShards) {
  const Scratch scratch(memory_folder());
  for (const std::int64_t asks_at : {2, 3}) {
    const auto folder = scratch / std::to_string(asks_at);
    run_asking(2, asks_at, {.dirpath = folder},
               [](TrainerOptions& options, std::int64_t) { options.gradient_shards = 4; });
    EXPECT_EQ(saved_steps(folder), Steps{2}) << asks_at;  // each rank has two shards of a step
  }
}

// The last requested checkpoint coincides with one that is due by steps.
TEST(AskedSaves, AreMadeInAdditionToThoseBySteps) {
  const Scratch scratch(memory_folder());
  run_asking(2, 7, {.dirpath = scratch / "a", .every_n_steps = 4});
  EXPECT_EQ(saved_steps(scratch / "a"), (Steps{4, 8, 12}));
}

TEST(AskedSaves, AreSeparateForEachFolder) {
  const Scratch scratch(memory_folder());
  run_asking(2, 6, {.dirpath = scratch / "asked"}, [&](TrainerOptions& options, std::int64_t) {
    options.callbacks.push_back(std::make_shared<ModelCheckpoint>(
        ModelCheckpointOptions{.dirpath = scratch / "other", .every_n_epochs = 0}));
  });
  EXPECT_EQ(saved_steps(scratch / "asked"), Steps{7});
  EXPECT_EQ(saved_steps(scratch / "other"), Steps{});
}

TEST(AskedSaves, ResumeBitIdentically) {
  const Scratch scratch(memory_folder());
  const auto whole = run_asking(2, 6, {.dirpath = scratch / "a"});
  const auto file = scratch / "a/step-00000007.safetensors";
  ASSERT_TRUE(std::filesystem::exists(file));
  const auto groups = ProcessGroup::from_threads(2, {.timeout_s = 60});
  std::vector<std::shared_ptr<Module>> models{small_mlp(), small_mlp()};
  on_ranks(groups, [&](ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    TensorData data = rank_images(2);
    Trainer(options_for(groups[rank])).fit(models[rank], data, {.resume = file});
  });
  for (const auto& model : models)
    for (std::size_t i = 0; i < model->parameters().size(); ++i)
      EXPECT_TRUE(model->parameters()[i].equal(whole[0].weights()[i])) << i;
}

// Of which some steps have two updates, and so two votes, and some have one.
TEST(AskedSaves, WorkWithSeveralUpdatesPerStep) {
  const Scratch scratch(memory_folder());
  for (const std::int64_t asks_at : {4, 5}) {
    const auto folder = scratch / std::to_string(asks_at);
    const auto groups = ProcessGroup::from_threads(2, {.timeout_s = 60});
    std::vector<std::shared_ptr<Asking<PointGan>>> models{std::make_shared<Asking<PointGan>>(2),
                                                          std::make_shared<Asking<PointGan>>(2)};
    on_ranks(groups, [&](ProcessGroup& group) {
      const auto rank = static_cast<std::size_t>(group.rank());
      const auto checkpoint = std::make_shared<ModelCheckpoint>(
          ModelCheckpointOptions{.dirpath = folder, .every_n_epochs = 0, .keep_last = 100});
      if (rank == 1) models[rank]->checkpoint = checkpoint, models[rank]->asks_at = asks_at;
      TensorData data = ramp(16, 0, 1);
      Trainer({.max_epochs = 1, .callbacks = {checkpoint}, .process_group = groups[rank]})
          .fit(models[rank], data);
    });
    EXPECT_EQ(saved_steps(folder), Steps{asks_at + 1});
  }
}

TEST(AskedSaves, WorkInCustomLoops) {
  const Scratch scratch(memory_folder());
  const auto groups = ProcessGroup::from_threads(2, {.timeout_s = 60});
  std::vector<std::shared_ptr<Module>> models{small_mlp(), small_mlp()};
  on_ranks(groups, [&](ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    const auto checkpoint = std::make_shared<ModelCheckpoint>(
        ModelCheckpointOptions{.dirpath = scratch / "a", .every_n_epochs = 0, .keep_last = 100});
    TrainerOptions options = options_for(groups[rank]);
    options.callbacks = {checkpoint};
    TensorData data = rank_images(2);
    Trainer trainer(options);
    trainer.prepare_data(data);
    trainer.prepare_model(models[rank]);
    while (!trainer.is_done()) {
      for (const Batch& batch : trainer.train_batches()) {
        trainer.train_step(batch);
        const std::int64_t step = trainer.progress().global_step;
        if ((rank == 1 && step == 7) || step == 11) checkpoint->request_save();
      }
      trainer.finish_epoch();
    }
    checkpoint->finish();
  });
  Steps steps;
  for (const CheckpointInfo& info : list_checkpoints(scratch / "a")) steps.insert(info.global_step);
  EXPECT_EQ(steps, (Steps{8, 12}));  // after the next step, because it was requested between two steps
}

// While a file is being written, a request starts no other one and blocks no step, but is kept. The end of
// the epoch is far away.
TEST(AskedSaves, WaitForTheFileThatIsBeingWritten) {
  struct Slow : FileOperations {
    int fsync(int file) override {
      for (int tries = 0; is_stuck && tries < 5000; ++tries) ::usleep(1000);
      return FileOperations::fsync(file);
    }
    std::atomic<bool> is_stuck = false;
  } operations;
  const Scratch scratch(memory_folder());
  const ScopedFileOperations in_force(operations);
  struct Sticks : Callback {
    explicit Sticks(Slow& slow) : operations(slow) {}
    void on_train_batch_end(Trainer& trainer, Module&) override {
      const auto& group = *trainer.options().process_group;
      if (group.rank() == 0) operations.is_stuck = trainer.progress().global_step < 9;
    }
    Slow& operations;
  };
  run_asking(2, 5, {.dirpath = scratch / "a", .asynchronous = true},
             [&](TrainerOptions& options, std::int64_t rank) {
               options.callbacks.push_back(std::make_shared<Sticks>(operations));
               if (rank == 0)
                 std::dynamic_pointer_cast<ModelCheckpoint>(options.callbacks.front())->request_save();
             });
  const Steps steps = saved_steps(scratch / "a");
  EXPECT_EQ(steps.size(), 2U);
  EXPECT_EQ(*steps.begin(), 1);
  EXPECT_GE(*steps.rbegin(), 9);
}

// A save that fails does so on rank 0 alone, and all ranks repeat it.
TEST(AskedSaves, AreRepeatedByAllRanksAfterAFailure) {
  const Scratch scratch(memory_folder());
  struct Moves : Callback {
    explicit Moves(const Scratch& of) : scratch(of) {}
    void on_epoch_end(Trainer& trainer, Module&, const Record& record) override {
      if (record.epoch == 3 && trainer.options().process_group->rank() == 0)
        std::filesystem::rename(scratch / "a", scratch / "away");
    }
    const Scratch& scratch;
  };
  const HeardWarnings warnings;
  const auto runs = run_ranks(2, [&](TrainerOptions& options, std::int64_t) {
    options.callbacks.push_back(std::make_shared<Moves>(scratch));
    options.callbacks.push_back(std::make_shared<ModelCheckpoint>(
        ModelCheckpointOptions{.dirpath = scratch / "a", .on_error = "continue"}));
  });
  for (const RankRun& run : runs) EXPECT_EQ(run.result.progress.epoch, 3);
  EXPECT_TRUE(warnings.has("saving the checkpoint failed; training continues"));
  EXPECT_FALSE(warnings.has("another rank")) << warnings.texts.back();  // nobody has waited for nobody
}

}  // namespace
}  // namespace kindling
