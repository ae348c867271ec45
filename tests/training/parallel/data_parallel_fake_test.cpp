// Two ranks, here threads, each on its own fake GPU.
#include <gtest/gtest.h>

#include "fake_accelerator.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/checkpoint/checkpoint_folder.h"
#include "kindling/training/model_checkpoint.h"
#include "support/fake_collectives.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"
#include "training/parallel/rank_runs.h"

namespace kindling {
namespace {

using Change = std::function<void(TrainerOptions&, std::int64_t)>;

// Like run_ranks(2, …), with each rank on its GPU.
std::vector<RankRun> run_on_cards(const Change& change = {}, const MakeModel& make = small_mlp,
                                  std::int64_t num_samples = kRankSamples) {
  fake::install_collectives();
  const auto on_cards = [&](TrainerOptions& options, std::int64_t rank) {
    options.num_gpus = 2;
    options.require_gpus = true;
    if (change) change(options, rank);
  };
  return run_ranks(2, on_cards, make, num_samples);
}

// The device computes with the CPU's kernels, and a sum of two numbers has no order. Clips without effect,
// because norms are summed in a different order on the host.
void expect_the_bits_of_the_cpu(const Change& change = {}, const MakeModel& make = small_mlp,
                                std::int64_t num_samples = kRankSamples) {
  const Change unclipped = [&](TrainerOptions& options, std::int64_t rank) {
    options.gradient_clip_val = 1000;
    if (change) change(options, rank);
  };
  const auto on_cards = run_on_cards(unclipped, make, num_samples);
  expect_replicas(on_cards);
  const auto on_cpu = run_ranks(2, unclipped, make, num_samples);
  for (const char* name : {"train_loss", "train_acc", "val_loss", "val_acc"})
    EXPECT_EQ(on_cards[0].result.metrics.at(name), on_cpu[0].result.metrics.at(name)) << name;
  const auto weights = on_cards[0].weights(), expected = on_cpu[0].weights();
  for (std::size_t i = 0; i < weights.size(); ++i) EXPECT_TRUE(weights[i].equal(expected[i])) << i;
  const auto buffers = on_cards[0].buffers(), expected_buffers = on_cpu[0].buffers();
  for (std::size_t i = 0; i < buffers.size(); ++i) EXPECT_TRUE(buffers[i].equal(expected_buffers[i])) << i;
}

TEST(FakeDataParallel, RunsEachRankOnTheGpuOfItsLocalRank) {
  const auto calls = fake::collective_counts();
  const auto runs = run_on_cards();
  EXPECT_EQ(runs[0].model->parameters()[0].device(), fake::device(0));
  EXPECT_EQ(runs[1].model->parameters()[0].device(), fake::device(1));
  const auto groups = ProcessGroup::from_threads(2, {.timeout_s = 60});
  EXPECT_EQ(Trainer({.max_epochs = 1, .num_gpus = -1, .process_group = groups[1]}).gpus(),
            std::vector<Device>{fake::device(1)});
  // Both in each of 15 steps, and at the start.
  EXPECT_EQ(fake::collective_counts().all_reduces - calls.all_reduces, 2 * 15);
  EXPECT_EQ(fake::collective_counts().broadcasts - calls.broadcasts, 2);
}

// With 49 samples the last batch has none for the second rank.
TEST(FakeDataParallel, TrainsBitIdenticallyToTheCpu) {
  for (const std::int64_t num_samples : {50, 49})
    for (const std::int64_t window : {1, 3}) {
      SCOPED_TRACE(std::to_string(num_samples) + " samples, window " + std::to_string(window));
      expect_the_bits_of_the_cpu(
          [&](TrainerOptions& options, std::int64_t) { options.accumulate_grad_batches = window; }, small_mlp,
          num_samples);
    }
}

TEST(FakeDataParallel, SendsManyBucketsDuringBackwardBitIdentically) {
  expect_the_bits_of_the_cpu([](TrainerOptions& options, std::int64_t) { options.max_epochs = 1; },
                             [] {
                               return mlp({64, 600, 600});
                             });
}

TEST(FakeDataParallel, TakesBuffersFromRank0) {
  expect_the_bits_of_the_cpu(
      {}, [] { return std::make_shared<Normed>(); }, /*num_samples=*/48);
}

TEST(FakeDataParallel, ShardsOptimizerStateBitIdentically) {
  for (const char* step_graph : {"off", "on"}) {
    SCOPED_TRACE(step_graph);
    expect_the_bits_of_the_cpu(
        [&](TrainerOptions& options, std::int64_t) {
          options.shard_optimizer_state = true;
          options.step_graph = step_graph;
          options.max_epochs = 2;
        },
        [] {
          return mlp({200, 16});
        });
  }
}

// Counts of both devices between the first and the last step of each epoch: at these two events both ranks
// are in the same place.
class CardCounter : public Callback {
 public:
  explicit CardCounter(ProcessGroup& group) : group_(group) {}
  void on_train_epoch_start(Trainer&, Module&) override {
    alone([] { fake::reset_counts(); });
  }
  void on_train_batch_end(Trainer& trainer, Module&) override {
    if (trainer.progress().batch == trainer.progress().num_train_batches)
      alone([&] { loops.push_back(fake::counts()); });
  }
  std::vector<fake::Counts> loops;

 private:
  void alone(const std::function<void()>& look) {
    group_.barrier();
    if (group_.rank() == 0) look();
    group_.barrier();
  }
  ProcessGroup& group_;
};

TEST(FakeDataParallel, StepsNeitherReadNorWaitForAGpu) {
  for (const auto& late_and_sharded : {std::pair(false, false), {true, false}, {true, true}}) {
    const bool is_sharded = late_and_sharded.second;  // clang 14 captures no structured binding
    if (late_and_sharded.first) fake::set_late_copies(true);
    std::shared_ptr<CardCounter> counter;
    run_on_cards(
        [&](TrainerOptions& options, std::int64_t rank) {
          const auto of_rank = std::make_shared<CardCounter>(*options.process_group);
          if (rank == 0) counter = of_rank;
          options.callbacks = {of_rank};
          options.shard_optimizer_state = is_sharded;
        },
        [] { return std::make_shared<Normed>(); }, /*num_samples=*/48);
    fake::set_late_copies(false);
    ASSERT_EQ(counter->loops.size(), 3U);
    for (const fake::Counts& loop : counter->loops) {
      EXPECT_EQ(loop.host_waits(), 0);
      EXPECT_EQ(loop.item_reads, 0);
      EXPECT_EQ(loop.device_to_host_copies, 0);
      EXPECT_EQ(loop.blocking_host_to_device_copies, 0);
      EXPECT_GT(loop.launches, 0);
    }
  }
}

TEST(FakeDataParallel, StopsAllRanksAfterTheSameStep) {
  const auto runs = run_on_cards([](TrainerOptions& options, std::int64_t rank) {
    options.callbacks = {std::make_shared<StopsAt>(rank == 1 ? 7 : -1, FitReason::requested)};
  });
  expect_replicas(runs);
  for (const RankRun& run : runs) {
    EXPECT_EQ(run.result.reason, FitReason::requested);
    EXPECT_EQ(run.result.progress.global_step, 9);  // sent with step 8, takes effect after step 9
  }
}

TEST(FakeDataParallel, SavesOnAllRanksAfterTheSameStep) {
  struct AsksAt : Callback {
    void on_train_batch_end(Trainer& trainer, Module&) override {
      if (trainer.progress().global_step == step) checkpoint->request_save();
    }
    std::int64_t step = -1;
    std::shared_ptr<ModelCheckpoint> checkpoint;
  };
  const Scratch scratch;
  run_on_cards([&](TrainerOptions& options, std::int64_t rank) {
    const auto asks = std::make_shared<AsksAt>();
    asks->checkpoint = std::make_shared<ModelCheckpoint>(
        ModelCheckpointOptions{.dirpath = scratch / "a", .every_n_epochs = 0, .keep_last = 100});
    if (rank == 1) asks->step = 7;
    options.callbacks = {asks, asks->checkpoint};
  });
  std::vector<std::int64_t> steps;
  for (const CheckpointInfo& info : list_checkpoints(scratch / "a")) steps.push_back(info.global_step);
  EXPECT_EQ(steps,
            (std::vector<std::int64_t>{15, 9}));  // sent with step 8, takes effect after step 9; and the end
}

TEST(FakeDataParallel, GivesAllRanksTheGradientOfAParameterThatOneUses) {
  const auto make = [is_first = std::make_shared<bool>(true)] {
    auto model = std::make_shared<Branches>();
    model->forward(at::zeros({1, 100}));
    model->uses_branch = std::exchange(*is_first, false);
    return model;
  };
  const auto runs = run_on_cards({}, make);
  expect_replicas(runs);
  for (const RankRun& run : runs) {
    const auto& model = dynamic_cast<Branches&>(*run.model);
    EXPECT_TRUE(model.sometimes->weight.grad().defined());
    EXPECT_FALSE(model.never->weight.grad().defined());
  }
}

// From the third batch on it takes its branch, on both ranks.
struct Wavering : Branches {
  at::Tensor training_step(const Batch& batch) override {
    uses_branch = trainer().batch_index() >= 2;
    return Branches::training_step(batch);
  }
};

TEST(FakeDataParallel, RefusesAParameterWhoseUseChangesWithinAnEpoch) {
  fake::install_collectives();
  std::vector<std::shared_ptr<Wavering>> models;
  for (int rank = 0; rank < 2; ++rank) {
    models.push_back(std::make_shared<Wavering>());
    models.back()->forward(at::zeros({1, 100}));
  }
  const auto groups = ProcessGroup::from_threads(2, {.timeout_s = 60});
  on_ranks(groups, [&](ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    TrainerOptions options = options_for(groups[rank]);
    options.num_gpus = 2;
    TensorData data = rank_images(2);
    try {
      Trainer(options).fit(models[rank], data);
      ADD_FAILURE() << "rank " << rank << " has trained";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("the gradient of 'sometimes.weight'"), std::string::npos)
          << error.what();
    }
  });
}

TEST(FakeDataParallel, NamesTheRankThatHasFailed) {
  fake::install_collectives();
  const auto groups = ProcessGroup::from_threads(2, {.timeout_s = 60});
  on_ranks(groups, [&](ProcessGroup& group) {
    const at::Tensor ones = at::ones({3}, fake::device(static_cast<int>(group.rank())));
    group.all_reduce(ones);
    EXPECT_TRUE(same(ones.cpu(), at::full({3}, 2.f)));
    if (group.rank() == 1) return group.leave("sample 7 is torn");
    const std::string text = error_text<DistributedError>([&] { group.all_reduce(ones); });
    EXPECT_NE(text.find("rank 1: sample 7 is torn"), std::string::npos) << text;
  });
}

TEST(FakeDataParallel, WarnsOfOrRefusesFewerGpusThanProcesses) {
  const auto groups = ProcessGroup::from_threads(3, {.timeout_s = 60});
  std::vector<std::string> messages;
  set_log_observer([&](LogLevel, const std::string& message) { messages.push_back(message); });
  const Trainer second({.max_epochs = 1, .num_gpus = 2, .process_group = groups[1]});
  EXPECT_TRUE(messages.empty());
  const Trainer third({.max_epochs = 1, .num_gpus = 2, .process_group = groups[2]});
  set_log_observer({});
  EXPECT_EQ(third.device(), fake::device(0));
  ASSERT_EQ(messages.size(), 1U);
  EXPECT_NE(messages[0].find("process number 3 of this machine finds 2 GPUs: it shares fake:0"),
            std::string::npos)
      << messages[0];
  EXPECT_THROW(Trainer({.max_epochs = 1, .num_gpus = 2, .require_gpus = true, .process_group = groups[2]}),
               DeviceError);
}

}  // namespace
}  // namespace kindling
