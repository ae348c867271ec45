#include "kindling/data/transformed_data.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "data/transforms/every_transform.h"
#include "kindling/base/error.h"
#include "kindling/data/crop_transforms.h"
#include "kindling/data/digits.h"
#include "kindling/data/image_transforms.h"
#include "kindling/data/sample_random.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

std::shared_ptr<const Transform> crop_and_flip() {
  return std::make_shared<Compose>(std::vector<std::shared_ptr<const Transform>>{
      std::make_shared<RandomCrop>(RandomCropOptions{.size = {{8, 8}}, .padding = 2}),
      std::make_shared<RandomHorizontalFlip>()});
}

// Both epochs of the training images, transformed.
std::vector<at::Tensor> augmented_epochs(const DataOptions& options) {
  TransformedData data(std::make_shared<Digits>(options), {.train = crop_and_flip()});
  data.prepare();
  std::vector<at::Tensor> images;
  for (int epoch = 0; epoch < 2; ++epoch)
    for (const Batch& batch : *data.train_dataloader())
      images.push_back(data.on_after_batch_transfer(batch, Stage::train)[0]);
  return images;
}

TEST(TransformedData, UsesTheRandomNumbersOfTheSamples) {
  const DataOptions options{.batch_size = 50, .seed = 4};
  const std::vector<at::Tensor> images = augmented_epochs(options);
  Digits digits(options);
  DataLoader& loader = *digits.train_dataloader();
  DataLoader::Cursor cursor(loader);
  cursor.seek(/*epoch=*/1, /*batch=*/3);
  Batch batch;
  cursor.next(batch);
  const at::Tensor uniforms = SampleStreams(4, 1).numbers(cursor.indices(), 3);
  const Batch expected =
      crop_and_flip()->apply(digits.on_after_batch_transfer(batch, Stage::train), uniforms);
  const auto index = static_cast<std::size_t>(loader.num_batches()) + 3;
  EXPECT_TRUE(same(images[index], expected[0]));
  EXPECT_FALSE(images[index].equal(digits.on_after_batch_transfer(batch, Stage::train)[0]));
}

TEST(TransformedData, IsTheSameForAnyNumberOfWorkers) {
  const std::vector<at::Tensor> expected = augmented_epochs({.batch_size = 100, .num_workers = 0});
  for (const std::int64_t workers : {1, 4}) {
    const std::vector<at::Tensor> images = augmented_epochs({.batch_size = 100, .num_workers = workers});
    ASSERT_EQ(images.size(), expected.size());
    for (std::size_t i = 0; i < images.size(); ++i) EXPECT_TRUE(same(images[i], expected[i])) << i;
  }
}

// 48 color images in [0, 1] with their labels.
struct ColorImages : DataModule {
  explicit ColorImages(std::int64_t num_workers)
      : DataModule({.batch_size = 12, .seed = 6, .num_workers = num_workers}) {
    const at::Tensor place = at::arange(48 * 3 * 8 * 10, at::kFloat).view({48, 3, 8, 10});
    images = place.mul(0.7).sin().mul(0.5).add(0.5);
  }
  std::shared_ptr<DataLoader> train_dataloader() override {
    return train_loader_of({images, at::arange(48).remainder(10)});
  }
  at::Tensor images;
};

struct EpochPlace {
  std::int64_t workers = 0, ranks = 1, first_batch = 0;
};

// What each sample of epoch 1 becomes, by its index; of those before `first_batch`, which a resumed run does
// not see, nothing.
std::vector<Batch> transformed_samples(const std::shared_ptr<const Transform>& transform, EpochPlace place) {
  TransformedData data(std::make_shared<ColorImages>(place.workers), {.train = transform});
  data.prepare();
  const auto loader = data.train_dataloader();
  std::vector<Batch> samples(48);
  for (std::int64_t rank = 0; rank < place.ranks; ++rank) {
    DataLoader::Cursor cursor(*loader);
    cursor.shard(rank, place.ranks);
    cursor.take_batches_of(12 / place.ranks);
    cursor.seek(/*epoch=*/1, place.first_batch);
    for (Batch batch; cursor.next(batch);) {
      const at::Tensor indices = cursor.indices();
      const Batch done = data.on_after_batch_transfer(batch, Stage::train);
      for (std::int64_t i = 0; i < indices.size(0); ++i)
        samples[static_cast<std::size_t>(indices[i].item<std::int64_t>())] =
            Batch{done[0][i].clone(), done[1][i].clone()};
    }
  }
  return samples;
}

TEST(TransformedData, EveryTransformIsTheSameForWorkersRanksAndResumes) {
  for (const auto& [name, transform] : every_transform()) {
    const std::vector<Batch> expected = transformed_samples(transform, {});
    std::vector<EpochPlace> places{{.workers = 1}, {.workers = 4}, {.first_batch = 2}};
    // They mix the samples of a rank's batch.
    if (name != "mix_up" && name != "cut_mix")
      places.insert(places.end(), {{.ranks = 2}, {.ranks = 4}, {.workers = 4, .ranks = 2, .first_batch = 1}});
    for (const EpochPlace& place : places) {
      std::size_t count = 0;
      const std::vector<Batch> samples = transformed_samples(transform, place);
      for (std::size_t i = 0; i < samples.size(); ++i) {
        if (samples[i].tensors().empty()) continue;
        ++count;
        for (std::size_t k = 0; k < 2; ++k)
          EXPECT_TRUE(same(samples[i][k], expected[i][k]))
              << name << ", sample " << i << ", " << place.workers << " workers, " << place.ranks << " ranks";
      }
      EXPECT_EQ(count, 48U - 12U * static_cast<std::size_t>(place.first_batch)) << name;
    }
  }
}

TEST(TransformedData, AppliesTheTransformsOfTheStage) {
  const auto digits = std::make_shared<Digits>();
  TransformedData data(digits,
                       {.train = crop_and_flip(),
                        .val = std::make_shared<Normalize>(NormalizeOptions{.mean = {0.5}, .std = {2}})});
  data.prepare();
  EXPECT_EQ(data.num_random_numbers(Stage::train), 3);
  EXPECT_EQ(data.num_random_numbers(Stage::val), 0);
  EXPECT_EQ(data.train_dataloader(), data.train_dataloader());
  EXPECT_EQ(data.val_dataloader(), digits->val_dataloader());  // which needs no random numbers
  Batch batch;
  data.val_dataloader()->start_epoch(0);
  data.val_dataloader()->next(batch);
  const at::Tensor plain = digits->on_after_batch_transfer(batch, Stage::val)[0];
  for (const Stage stage : {Stage::val, Stage::test, Stage::predict})
    EXPECT_TRUE(same(data.on_after_batch_transfer(batch, stage)[0], (plain - 0.5) / 2));
}

TEST(TransformedData, KeepsTheSampler) {
  TransformedData data(std::make_shared<Digits>(DataOptions{.sampler = "balanced"}),
                       {.train = crop_and_flip()});
  data.prepare();
  EXPECT_NE(data.train_dataloader()->options().sampler, nullptr);
}

// One sample, whose image is replaced by its first random number.
class NumberAsImage : public DataModule {
 public:
  std::shared_ptr<DataLoader> train_dataloader() override {
    return train_loader_of({at::zeros({1, 1, 1, 2}), at::zeros({1})});
  }
  std::int64_t num_random_numbers(Stage) const override { return 1; }
  using DataModule::on_after_batch_transfer;
  Batch on_after_batch_transfer(Batch batch) override {
    EXPECT_EQ(batch.random_numbers().sizes(), (at::IntArrayRef{1, 1}));
    batch.tensors()[0] = batch.random_numbers().view({1, 1, 1, 1}).expand({1, 1, 1, 2});
    return batch;
  }
};

TEST(TransformedData, LeavesTheFirstNumbersToTheOtherModule) {
  TransformedData data(std::make_shared<NumberAsImage>(),
                       {.train = std::make_shared<RandomHorizontalFlip>()});
  data.prepare();
  Batch batch;
  data.train_dataloader()->start_epoch(0);
  data.train_dataloader()->next(batch);
  ASSERT_EQ(batch.random_numbers().sizes(), (at::IntArrayRef{1, 2}));
  const at::Tensor first = batch.random_numbers().narrow(1, 0, 1).clone();
  EXPECT_TRUE(
      same(data.on_after_batch_transfer(batch, Stage::train)[0].flatten(), first.expand({1, 2}).flatten()));
}

TEST(TransformedData, RefusesNoDataAndBatchesOfOtherLoaders) {
  EXPECT_EQ(error_text<ConfigError>([] { TransformedData(nullptr, {}); }),
            "TransformedData: the data module is a null pointer; expected: a data module");
  const auto digits = std::make_shared<Digits>();
  TransformedData data(digits, {.train = crop_and_flip()});
  data.prepare();
  EXPECT_EQ(error_text<DataError>(
                [&] { data.on_after_batch_transfer(*digits->train_dataloader()->begin(), Stage::train); }),
            "TransformedData: the batch has no random numbers per sample; expected: at least 3; take batches "
            "from the loaders of TransformedData");
}

}  // namespace
}  // namespace kindling
