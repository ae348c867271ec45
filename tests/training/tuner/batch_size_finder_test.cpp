// The search for the largest batch that fits in memory.
#include "kindling/training/batch_size_finder.h"

#include <ATen/ops/empty.h>

#include <cstdio>

#include "kindling/base/error.h"
#include "kindling/data/sequence_windows.h"
#include "kindling/models/small_cnn.h"
#include "support/device_under_test.h"
#include "support/memory_limit.h"
#include "support/rank_threads.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"
#include "training/loop/small_fit.h"
#include "training/step/point_gan.h"

namespace kindling {
namespace {

// Has memory for so many samples; with more it fails as an allocator does.
class Limited : public Slope {
 public:
  enum class As { card, bad_alloc, onednn, other };
  explicit Limited(std::int64_t most, As as = As::card) : most_(most), as_(as) {}

  at::Tensor forward(const at::Tensor& x) override {
    if (x.size(0) > most_) {
      if (as_ == As::bad_alloc) throw std::bad_alloc();
      if (as_ == As::onednn) throw std::runtime_error("could not create a primitive");
      if (as_ == As::other) throw std::runtime_error("something else");
      TORCH_CHECK_WITH(OutOfMemoryError, false,
                       "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has …");
    }
    return Slope::forward(x);
  }

 private:
  std::int64_t most_;
  As as_;
};

using Trials = std::vector<std::pair<std::int64_t, bool>>;

Trials trials_of(const BatchSizeFinderResult& result) {
  Trials trials;
  for (const auto& [batch_size, fits] : result.trials) trials.emplace_back(batch_size, fits);
  return trials;
}

class BatchSizeFinder : public OnDevice {
 protected:
  TrainerOptions options() const {
    return {.max_epochs = 1, .num_gpus = num_gpus_wanted(), .optimizer = sgd(0.1)};
  }
  BatchSizeFinderResult search(std::int64_t most, const BatchSizeFinderOptions& finder,
                               Limited::As as = Limited::As::card) const {
    TensorData data = ramp(100, 9, 5);
    const auto model = std::make_shared<Limited>(most, as);
    const auto result = find_batch_size(options(), model, data, finder);
    EXPECT_TRUE(same(model->weight, at::zeros({1})));
    EXPECT_FALSE(model->weight.grad().defined());
    return result;
  }
};

KINDLING_RUN_ON_TRAINER_DEVICES(BatchSizeFinder);

TEST_P(BatchSizeFinder, DoublesUntilOutOfMemory) {
  for (const Limited::As as : {Limited::As::card, Limited::As::bad_alloc, Limited::As::onednn}) {
    const auto result = search(23, {}, as);
    EXPECT_EQ(result.batch_size, 16);
    EXPECT_EQ(trials_of(result), (Trials{{2, true}, {4, true}, {8, true}, {16, true}, {32, false}}));
  }
}

TEST_P(BatchSizeFinder, SearchesBetweenSizesThatFitAndDoNot) {
  const auto result = search(23, {.mode = "binsearch"});
  EXPECT_EQ(result.batch_size, 23);
  EXPECT_EQ(trials_of(result), (Trials{{2, true},
                                       {4, true},
                                       {8, true},
                                       {16, true},
                                       {32, false},
                                       {24, false},
                                       {20, true},
                                       {22, true},
                                       {23, true}}));
}

TEST_P(BatchSizeFinder, HalvesAFirstSizeThatDoesNotFit) {
  EXPECT_EQ(trials_of(search(10, {.init_val = 32})), (Trials{{32, false}, {16, false}, {8, true}}));
  EXPECT_EQ(search(10, {.mode = "binsearch", .init_val = 32}).batch_size, 10);
  EXPECT_EQ(trials_of(search(1, {})), (Trials{{2, false}, {1, true}}));
}

TEST_P(BatchSizeFinder, EndsWithAllSamplesOrAllTrials) {
  const auto all = search(1000, {});
  EXPECT_EQ(all.batch_size, 100);
  EXPECT_EQ(all.trials.back().batch_size, 100);
  EXPECT_EQ(all.trials.size(), 7U);
  EXPECT_EQ(trials_of(search(1000, {.init_val = 500})), (Trials{{100, true}}));
  const auto few = search(1000, {.max_trials = 3});
  EXPECT_EQ(few.batch_size, 8);  // which has been tried
  EXPECT_EQ(few.trials.size(), 3U);
}

TEST_P(BatchSizeFinder, ThrowsIfNothingFits) {
  EXPECT_EQ(error_text<Error>([&] { search(0, {}); }),
            "find_batch_size: out of memory with every batch size that was tried, down to 1; use a "
            "smaller model or smaller samples");
  EXPECT_EQ(error_text<Error>([&] { search(3, {.init_val = 64, .max_trials = 2}); }),
            "find_batch_size: out of memory with every batch size that was tried, down to 32; start "
            "with a smaller init_val");
}

TEST_P(BatchSizeFinder, RethrowsOtherErrors) {
  EXPECT_EQ(error_text<std::runtime_error>([&] { search(3, {}, Limited::As::other); }), "something else");
  TensorData data = ramp(12, 0, 3);
  struct Windows : DataModule {
    std::shared_ptr<DataLoader> train_dataloader() override {
      return SequenceWindows::loader({at::rand({6, 10, 1})}, {.batch_size = 3, .num_steps = 5});
    }
  } windows;
  EXPECT_NE(error_text<DataError>([&] { find_batch_size(options(), std::make_shared<Slope>(), windows); }),
            "(no error)");
}

// Steps that accumulate, and a validation, are part of what must fit.
TEST_P(BatchSizeFinder, TriesWholeStepsAndAValidation) {
  TensorData data = ramp(100, 9, 5);
  const auto model = std::make_shared<Slope>();
  TrainerOptions with = options();
  with.accumulate_grad_batches = 2;
  find_batch_size(with, model, data, {.steps_per_trial = 2, .init_val = 4, .max_trials = 1});
  EXPECT_EQ(model->train_sizes, (std::vector<std::int64_t>{4, 4, 4, 4}));
  EXPECT_EQ(model->num_val_batches, 2);
  model->train_sizes.clear();
  with.limit_val_batches = 0;
  with.accumulate_grad_batches = 1;
  find_batch_size(with, model, data, {.steps_per_trial = 5, .init_val = 10, .max_trials = 1});
  EXPECT_EQ(model->train_sizes, std::vector<std::int64_t>(5, 10));
  EXPECT_EQ(model->num_val_batches, 2);
}

TEST_P(BatchSizeFinder, LeavesALaterFitBitIdentical) {
  StateDict plain;
  for (const bool searches : {false, true}) {
    at::manual_seed(5);
    NoiseImages data(32, 8, 8);
    const auto model = std::make_shared<SmallCnn>(SmallCnnOptions{.channels = {4}, .hidden = 8});
    TrainerOptions with{.max_epochs = 2, .num_gpus = num_gpus_wanted()};
    if (searches) find_batch_size(with, model, data);
    Trainer(with).fit(model, data);
    if (!searches) plain = state_dict(*model);
    for (const auto& [name, tensor] : state_dict(*model).tensors)
      EXPECT_TRUE(same(tensor, *plain.find(name))) << name;
  }
}

TEST_P(BatchSizeFinder, SupportsManualModules) {
  const at::Tensor points = at::rand({20, 1});
  TensorData data({points, points}, {}, {.batch_size = 2});
  EXPECT_EQ(find_batch_size({.num_gpus = num_gpus_wanted()}, std::make_shared<PointGan>(), data).batch_size,
            20);
}

TEST_P(BatchSizeFinder, EndsWhenAStopIsRequested) {
  struct Stopping : Slope {
    StopToken token;
    at::Tensor forward(const at::Tensor& x) override {
      if (x.size(0) == 8) token.request_stop();
      return Slope::forward(x);
    }
  };
  const auto model = std::make_shared<Stopping>();
  TensorData data = ramp(100, 0, 5);
  const auto result = find_batch_size(options(), model, data, {}, model->token);
  EXPECT_EQ(result.batch_size, 4);
  EXPECT_EQ(model->train_sizes, (std::vector<std::int64_t>{2, 2, 2, 4, 4, 4, 8}));
  EXPECT_EQ(find_batch_size(options(), model, data, {}, model->token).batch_size, 0);
}

TEST(BatchSizeFinderOptionsTest, AreChecked) {
  TensorData data = ramp(9, 0, 3);
  const auto error = [&](const BatchSizeFinderOptions& finder) {
    return error_text<ConfigError>([&] { find_batch_size({}, std::make_shared<Slope>(), data, finder); });
  };
  EXPECT_NE(error({.mode = "linear"}).find("binsearch"), std::string::npos);
  EXPECT_NE(error({.steps_per_trial = 0}).find("steps_per_trial"), std::string::npos);
  EXPECT_NE(error({.init_val = 0}).find("init_val"), std::string::npos);
  EXPECT_NE(error({.max_trials = 0}).find("max_trials"), std::string::npos);
  EXPECT_NE(error({.margin = 1}).find("margin"), std::string::npos);
  EXPECT_NE(error({.margin = -0.1}).find("margin"), std::string::npos);
}

// In a process of its own, whose address space leaves 256 MB: the activations of a convolution and what its
// library keeps for itself. Each sample takes several maps of 16 and 32 · 32 · 32 floats, 64 and 128 KB.
TEST(BatchSizeFinderLimit, SurvivesARealOutOfMemory) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer needs its own address space";
#endif
  if (num_gpus() > 0) GTEST_SKIP() << "autograd's GPU threads do not survive a fork";
  const std::string text = text_of_limited_child(256U << 20U, [] {
    NoiseImages data(1024, 32, 8);
    const auto model = std::make_shared<SmallCnn>();
    try {
      const auto result =
          find_batch_size({.max_epochs = 1}, model, data, {.mode = "binsearch", .steps_per_trial = 1});
      Trainer({.max_steps = 2, .num_sanity_val_steps = 0}).fit(model, data);  // training still works
      std::string found = std::to_string(result.batch_size) + (result.trials.back().fits ? " +" : " -");
      for (const auto& trial : result.trials)
        if (!trial.fits) found += " " + std::to_string(trial.batch_size);
      return found;
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
  });
  const std::int64_t found = std::atoll(text.c_str());
  EXPECT_GE(found, 16) << text;
  EXPECT_LT(found, 1024) << text;  // 256 MB would hold four maps of 16 channels of each sample, or two of 32
  EXPECT_GE(std::ranges::count(text, ' '), 2) << text;  // something did not fit
}

// Running out of memory ends a group, so the ranks try by themselves and agree on the result.
TEST(BatchSizeFinderOfRanks, FindsWhatFitsOnAll) {
  const auto groups = ProcessGroup::from_threads(2, {.timeout_s = 60});
  std::vector<BatchSizeFinderResult> results(2);
  on_ranks(groups, [&](ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    TensorData data = ramp(40, 0, 3);
    TrainerOptions options{.max_epochs = 1, .step_graph = "off", .optimizer = sgd(0.1)};
    options.process_group = groups[rank];
    options.num_processes = 2;
    results[rank] =
        find_batch_size(options, std::make_shared<Limited>(rank == 0 ? 9 : 5), data, {.mode = "binsearch"});
    group.barrier();
  });
  for (const BatchSizeFinderResult& result : results) {
    EXPECT_EQ(result.batch_size, 5);
    EXPECT_EQ(result.trials.size(), 5U);  // 2, 4, 8, 6, 5
  }
}

TEST(BatchSizeFinderOfRanks, StopsOnAllAndEndsWithAnErrorOnAll) {
  const auto groups = ProcessGroup::from_threads(2, {.timeout_s = 60});
  on_ranks(groups, [&](ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    TensorData data = ramp(40, 0, 3);
    TrainerOptions options{.max_epochs = 1, .step_graph = "off", .optimizer = sgd(0.1)};
    options.process_group = groups[rank];
    const StopToken stop;
    if (rank == 1) stop.request_stop(FitReason::requested);
    EXPECT_EQ(find_batch_size(options, std::make_shared<Slope>(), data, {}, stop).batch_size, 0);
    EXPECT_TRUE(stop.stop_requested());
    const auto model = std::make_shared<Limited>(rank == 0 ? 100 : 1, Limited::As::other);
    EXPECT_THROW(find_batch_size(options, model, data), std::exception) << rank;
  });
}

}  // namespace
}  // namespace kindling
