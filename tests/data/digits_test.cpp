#include "kindling/data/digits.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "kindling/base/error.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

struct Samples {
  at::Tensor images, labels;
};

Samples all_of(DataLoader& loader) {
  std::vector<at::Tensor> images, labels;
  for (const Batch& batch : loader) {
    images.push_back(batch[0].clone());
    labels.push_back(batch[1].clone());
  }
  return {at::cat(images), at::cat(labels)};
}

TEST(Digits, ContainsEverySampleOnce) {
  Digits data;
  const Samples train = all_of(*data.train_dataloader()), val = all_of(*data.val_dataloader());
  const at::Tensor images = at::cat({train.images, val.images});
  EXPECT_EQ(images.sizes(), (std::vector<std::int64_t>{1797, 1, 8, 8}));
  EXPECT_EQ(images.scalar_type(), at::kByte);
  EXPECT_EQ(images.max().item<int>(), 16);
  EXPECT_EQ(images.sum().item<std::int64_t>(), 561718);  // scikit-learn: load_digits().data.sum()
  const at::Tensor counts = at::bincount(at::cat({train.labels, val.labels}).to(at::kLong));
  EXPECT_TRUE(same(counts, at::tensor({178, 182, 177, 183, 181, 182, 181, 179, 174, 180}, at::kLong)));
}

TEST(Digits, EveryDigitIsSplitEightyTwenty) {
  Digits data;
  const at::Tensor counts = at::bincount(all_of(*data.val_dataloader()).labels.to(at::kLong));
  // A fifth of each of the counts above, rounded.
  EXPECT_TRUE(same(counts, at::tensor({36, 36, 35, 37, 36, 36, 36, 36, 35, 36}, at::kLong)));
  EXPECT_EQ(data.train_dataloader()->dataset().size(), 1797 - 359);
}

TEST(Digits, SplitIsTheSameForEverySeed) {
  Digits one({.seed = 1}), two({.seed = 2});
  EXPECT_TRUE(same(all_of(*one.val_dataloader()).images, all_of(*two.val_dataloader()).images));
}

class DigitsOnDevice : public OnDevice {};
KINDLING_RUN_ON_DEVICES(DigitsOnDevice);

TEST_P(DigitsOnDevice, BecomeSixteenthsAfterTheTransfer) {
  Digits data({.batch_size = 5, .shuffle = false});
  Batch raw;
  data.train_dataloader()->start_epoch(0);
  data.train_dataloader()->next(raw);
  const Batch batch = data.on_after_batch_transfer(Batch{raw[0].to(device_), raw[1].to(device_)});
  EXPECT_EQ(batch[0].device(), device_);
  EXPECT_EQ(batch[0].sizes(), (std::vector<std::int64_t>{5, 1, 8, 8}));
  EXPECT_TRUE(same(batch[0], raw[0].to(at::kFloat) * 0.0625));
  EXPECT_EQ(batch[1].scalar_type(), at::kLong);
  EXPECT_TRUE(same(batch[1], raw[1].to(at::kLong)));
  EXPECT_EQ(raw[0].scalar_type(), at::kByte);  // the loader's bytes are left alone
}

TEST(Digits, RangesChooseSamples) {
  Digits data({.shuffle = false, .train = {{10, 30}}, .val = {{0, 7}}});
  Digits whole({.shuffle = false});
  const Samples some = all_of(*data.train_dataloader()), all = all_of(*whole.train_dataloader());
  EXPECT_TRUE(same(some.images, all.images.narrow(0, 10, 20)));
  EXPECT_EQ(data.val_dataloader()->dataset().size(), 7);
}

TEST(Digits, RangesOutsideOfTheSetAreRefused) {
  EXPECT_EQ(error_text<ConfigError>([] {
              Digits({.train = {{0, 5000}}}).train_dataloader();
            }),
            "data.train: the range [0, 5000]; expected: [first, end] with 0 <= first < end <= 1438");
  EXPECT_EQ(error_text<ConfigError>([] {
              Digits({.val = {{5, 5}}}).val_dataloader();
            }),
            "data.val: the range [5, 5]; expected: [first, end] with 0 <= first < end <= 359");
  EXPECT_THROW(Digits({.batch_size = 0}), ConfigError);
}

TEST(Digits, LoadersStayTheSameOnes) {
  Digits data;
  EXPECT_EQ(data.train_dataloader(), data.train_dataloader());
  EXPECT_EQ(data.test_dataloader(), data.val_dataloader());
  EXPECT_EQ(data.predict_dataloader(), data.val_dataloader());
  EXPECT_TRUE(data.train_dataloader()->options().shuffle);
  EXPECT_FALSE(data.val_dataloader()->options().shuffle);
}

}  // namespace
}  // namespace kindling
