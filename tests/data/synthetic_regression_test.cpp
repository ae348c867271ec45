#include "kindling/data/synthetic_regression.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "kindling/base/error.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

Batch whole(DataLoader& loader) {
  Batch batch;
  loader.start_epoch(0);
  EXPECT_TRUE(loader.next(batch));
  return batch;
}

constexpr std::int64_t kAll = 5000;

TEST(SyntheticRegression, LabelsFollowTheFormula) {
  SyntheticRegression data({.w = {2, -3.4}, .b = 4.2, .noise = 0}, {.batch_size = kAll});
  const Batch batch = whole(*data.train_dataloader());
  EXPECT_EQ(batch[0].sizes(), (std::vector<std::int64_t>{1000, 2}));
  const at::Tensor x = batch[0], y = x.select(1, 0) * 2 + x.select(1, 1) * -3.4 + 4.2;
  EXPECT_TRUE(close(batch[1], y.unsqueeze(1), 1e-6));  // another order of float additions
}

TEST(SyntheticRegression, NoiseHasItsDeviation) {
  SyntheticRegression quiet({.noise = 0, .num_train = kAll}, {.batch_size = kAll, .shuffle = false});
  SyntheticRegression loud({.noise = 0.5, .num_train = kAll}, {.batch_size = kAll, .shuffle = false});
  const Batch a = whole(*quiet.train_dataloader()), b = whole(*loud.train_dataloader());
  EXPECT_TRUE(same(a[0], b[0]));
  const at::Tensor noise = b[1] - a[1];
  EXPECT_NEAR(noise.std().item<double>(), 0.5, 0.025);  // 5 standard errors, 0.5 / √(2·5000) each
  EXPECT_NEAR(noise.mean().item<double>(), 0, 0.036);   // 5 standard errors, 0.5 / √5000 each
}

TEST(SyntheticRegression, SamplesComeFromTheirOwnSeed) {
  SyntheticRegression one, same_one, other({.data_seed = 1});
  EXPECT_TRUE(same(whole(*one.val_dataloader())[0], whole(*same_one.val_dataloader())[0]));
  EXPECT_FALSE(same(whole(*one.val_dataloader())[0], whole(*other.val_dataloader())[0]));
}

TEST(SyntheticRegression, TrainingAndValidationDiffer) {
  SyntheticRegression data({.num_train = 30, .num_val = 20}, {.batch_size = kAll, .shuffle = false});
  const Batch train = whole(*data.train_dataloader()), val = whole(*data.val_dataloader());
  EXPECT_EQ(train.num_samples(), 30);
  EXPECT_EQ(val.num_samples(), 20);
  EXPECT_FALSE(same(train[0].narrow(0, 0, 20), val[0]));
}

TEST(SyntheticRegression, NeedsWeights) {
  EXPECT_THROW(SyntheticRegression({.w = {}}), DataError);
  EXPECT_THROW(SyntheticRegression({.num_train = 0}), ConfigError);
}

}  // namespace
}  // namespace kindling
