// The measurement of threads: what it chooses, and that it leaves nothing behind.
#include "kindling/training/threads_finder.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "device/operator_threads.h"
#include "kindling/models/small_cnn.h"
#include "kindling/tensors/state_dict.h"
#include "support/rank_threads.h"
#include "support/tensor_matchers.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

// Its steps are slow with this number of threads.
class SlowWith : public Slope {
 public:
  explicit SlowWith(int num_threads, std::chrono::milliseconds by = std::chrono::milliseconds(2))
      : num_threads_(num_threads), by_(by) {}
  at::Tensor forward(const at::Tensor& x) override {
    if (at::get_num_threads() == num_threads_) std::this_thread::sleep_for(by_);
    return Slope::forward(x);
  }
  bool has_static_graph() const override { return true; }

 private:
  int num_threads_;
  std::chrono::milliseconds by_;
};

TrainerOptions few_epochs() { return {.max_epochs = 2, .step_graph = "off", .optimizer = sgd(0.1)}; }

TEST(ThreadsFinder, ChoosesTheFasterOne) {
  const OperatorThreads threads(2);
  for (const int slow : {1, 2}) {
    TensorData data = ramp(20, 0, 5);
    const ThreadsFinderResult found = find_num_threads(few_epochs(), std::make_shared<SlowWith>(slow), data);
    ASSERT_EQ(found.trials.size(), 2U);
    EXPECT_EQ(found.trials[0].num_threads, 1);
    EXPECT_EQ(found.trials[1].num_threads, 2);
    EXPECT_GE(found.trials[static_cast<std::size_t>(slow - 1)].seconds_per_step, 2e-3);
    EXPECT_EQ(found.num_threads, 3 - slow);
    EXPECT_EQ(at::get_num_threads(), 2);
  }
}

TEST(ThreadsFinder, LeavesTrainingUnchanged) {
  const auto weights_after = [](bool measures) {
    const OperatorThreads threads(2);
    at::manual_seed(7);
    const auto model = std::make_shared<SmallCnn>(SmallCnnOptions{.channels = {4}, .hidden = 8});
    NoiseImages data(32, 8, 8);
    if (measures) {
      EXPECT_EQ(find_num_threads(few_epochs(), model, data).trials.size(), 2U);
      EXPECT_EQ(at::get_num_threads(), 2);
    }
    TrainerOptions options = few_epochs();
    options.num_threads = 1;
    Trainer(options).fit(model, data);
    return state_dict(*model);
  };
  const StateDict measured = weights_after(true), alone = weights_after(false);
  ASSERT_EQ(measured.tensors.size(), alone.tensors.size());
  for (std::size_t i = 0; i < alone.tensors.size(); ++i)
    EXPECT_TRUE(same(measured.tensors[i].second, alone.tensors[i].second)) << alone.tensors[i].first;
}

TEST(ThreadsFinder, MeasuresNothingWithoutAChoice) {
  TensorData data = ramp(20, 0, 5);
  const auto slope = std::make_shared<Slope>();  // counts its steps
  {
    const OperatorThreads threads(2);
    const ThreadsFinderResult found = find_num_threads(few_epochs(), slope, data);
    EXPECT_EQ(found.num_threads, 2);
    EXPECT_TRUE(found.trials.empty());
    EXPECT_TRUE(slope->train_sizes.empty());
  }
  const OperatorThreads threads(1);
  const ThreadsFinderResult found = find_num_threads(few_epochs(), std::make_shared<SlowWith>(1), data);
  EXPECT_EQ(found.num_threads, 1);
  EXPECT_TRUE(found.trials.empty());
}

// Ranks that measure for a different number of steps would wait for each other.
TEST(ThreadsFinderOfRanks, DecideTogether) {
  const OperatorThreads restored(at::get_num_threads());  // MKL's number belongs to the process
  for (const int of_second : {1, 2}) {
    const auto groups = ProcessGroup::from_threads(2, {.timeout_s = 60});
    std::vector<ThreadsFinderResult> results(2);
    on_ranks(groups, [&](ProcessGroup& group) {
      const auto rank = static_cast<std::size_t>(group.rank());
      const OperatorThreads threads(rank == 0 ? 2 : of_second);
      TensorData data = ramp(20, 0, 5);
      TrainerOptions options = few_epochs();
      options.process_group = groups[rank];
      const std::chrono::milliseconds longer_than_an_exchange(30);
      const auto model = std::make_shared<SlowWith>(rank == 0 ? 1 : 0, longer_than_an_exchange);
      results[rank] = find_num_threads(options, model, data);
    });
    EXPECT_EQ(results[0].trials.size(), of_second == 1 ? 0U : 2U);
    EXPECT_EQ(results[1].trials.size(), results[0].trials.size());
    EXPECT_EQ(results[0].num_threads, 2);
    EXPECT_EQ(results[1].num_threads, of_second);
  }
}

}  // namespace
}  // namespace kindling
