// Gradients sent as bfloat16 between ranks, here threads.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kindling/base/error.h"
#include "training/parallel/counting_group.h"
#include "training/parallel/gradient_bucket.h"
#include "training/parallel/rank_runs.h"

namespace kindling {
namespace {

const DistributedOptions kNarrow{.timeout_s = 60, .compression = "bf16"};

std::vector<RankRun> narrow_ranks(std::int64_t size,
                                  const std::function<void(TrainerOptions&, std::int64_t)>& change = {},
                                  const MakeModel& make = small_mlp) {
  return run_ranks(size, change, make, kRankSamples, kNarrow);
}

// 257 has nine significant bits, one more than bfloat16.
TEST(Compression, RoundsGradientsAndNothingElse) {
  const auto groups = ProcessGroup::from_threads(2, kNarrow);
  on_ranks(groups, [](ProcessGroup& group) {
    GradientBucket bucket({at::zeros({2})}, /*num_more=*/2);
    bucket.take(0, at::tensor({257.F, 0.5F}), /*scale=*/1);
    bucket.more().copy_(at::tensor({257.F, group.rank() == 1 ? NAN : 0.F}));
    bucket.send(group, /*in_tree=*/false);
    bucket.receive();
    EXPECT_TRUE(bucket.view(0).equal(at::tensor({512.F, 1.F}))) << bucket.view(0);
    EXPECT_EQ(bucket.more()[0].item<float>(), 514);
    EXPECT_TRUE(std::isnan(bucket.more()[1].item<float>()));
  });
}

TEST(Compression, LeavesGradientsOfOtherTypesUnchanged) {
  const auto groups = ProcessGroup::from_threads(2, kNarrow);
  on_ranks(groups, [](ProcessGroup& group) {
    GradientBucket bucket({at::zeros({1}, at::kDouble)}, /*num_more=*/0);
    bucket.take(0, at::full({1}, 257, at::kDouble), /*scale=*/1);
    bucket.send(group, /*in_tree=*/false);
    bucket.receive();
    EXPECT_EQ(bucket.view(0).item<double>(), 514);
  });
}

// Of a run of one epoch, on rank 0.
std::int64_t bytes_sent(const DistributedOptions& options) {
  const auto groups = ProcessGroup::from_threads(2, options);
  std::vector<std::shared_ptr<Mlp>> models{mlp({64, 600, 600}), mlp({64, 600, 600})};
  std::int64_t bytes = 0;
  on_ranks(groups, [&](ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    const auto counting = std::make_shared<CountingGroup>(groups[rank]);
    TensorData data = rank_images(2);
    Trainer({.max_steps = 3, .num_sanity_val_steps = 0, .process_group = counting}).fit(models[rank], data);
    if (rank == 0) bytes = counting->num_bytes;
  });
  return bytes;
}

TEST(Compression, HalvesTheBytesOfGradients) {
  std::int64_t gradients = 0;
  for (const at::Tensor& parameter : mlp({64, 600, 600})->parameters())
    gradients += (parameter.numel() + 15) / 16 * 16 * 4;  // each begins at a multiple of 16 numbers
  const std::int64_t wide = bytes_sent({.timeout_s = 60}), narrow = bytes_sent(kNarrow);
  EXPECT_EQ(wide - narrow, 3 * gradients / 2);
  EXPECT_LT(static_cast<double>(narrow), 0.501 * static_cast<double>(wide));
}

// Of gradients with 8 significant bits, 50 steps later.
TEST(Compression, TrainsNearlyAsWellAsWithoutIt) {
  const auto change = [](TrainerOptions& options, std::int64_t) { options.max_epochs = 10; };
  const auto wide = run_ranks(2, change), narrow = narrow_ranks(2, change), again = narrow_ranks(4, change);
  expect_replicas(narrow);
  expect_replicas(again);
  EXPECT_FALSE(narrow[0].weights()[0].equal(wide[0].weights()[0]));
  for (const auto& runs : {narrow, again})
    for (const char* name : {"train_loss", "val_loss"})
      EXPECT_NEAR(runs[0].result.metrics.at(name), wide[0].result.metrics.at(name),
                  0.02 * wide[0].result.metrics.at(name))
          << name;
  EXPECT_LT(narrow[0].result.metrics.at("train_loss"), 0.5);  // of 2.3 at the start
}

TEST(Compression, IsRefusedWithGradientShards) {
  const auto groups = ProcessGroup::from_threads(2, kNarrow);
  try {
    Trainer({.max_epochs = 1, .gradient_shards = 2, .process_group = groups[0]});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "distributed.compression: it is bf16, but gradient_shards needs uncompressed sums; "
                 "expected: \"none\"");
  }
}

TEST(Compression, MustBeTheSameOnAllRanks) {
  const auto first = ProcessGroup::from_threads(2, {.timeout_s = 60});
  std::vector<std::string> errors(2);
  on_ranks(first, [&](ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    const auto other = std::make_shared<CountingGroup>(first[rank], rank == 1 ? kNarrow : group.options());
    TensorData data = rank_images(2);
    try {
      Trainer(options_for(other)).fit(mlp({16}), data);
    } catch (const Error& error) {
      errors[rank] = error.what();
    }
  });
  for (const std::string& error : errors)
    EXPECT_NE(error.find("compression is 'bf16' on rank 1 and 'none' on rank 0"), std::string::npos) << error;
}

}  // namespace
}  // namespace kindling
