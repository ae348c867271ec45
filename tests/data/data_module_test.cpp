#include "kindling/data/data_module.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <fstream>

#include "kindling/data/idx_data.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

// Five samples, for training and for validation.
class FiveSamples : public DataModule {
 public:
  using DataModule::DataModule;
  std::shared_ptr<DataLoader> train_dataloader() override { return train_loader_of({at::arange(5)}); }
  std::shared_ptr<DataLoader> val_dataloader() override { return val_loader_of({at::arange(5)}); }
};

std::vector<std::int64_t> sizes_of(DataLoader& loader) {
  std::vector<std::int64_t> sizes;
  for (const Batch& batch : loader) sizes.push_back(batch.num_samples());
  return sizes;
}

TEST(DataModule, DropLastConcernsTheTrainingSamplesOnly) {
  FiveSamples data({.batch_size = 2, .shuffle = false, .drop_last = true});
  EXPECT_EQ(sizes_of(*data.train_dataloader()), (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(sizes_of(*data.val_dataloader()), (std::vector<std::int64_t>{2, 2, 1}));
  EXPECT_EQ(sizes_of(*data.test_dataloader()), (std::vector<std::int64_t>{2, 2, 1}));
  EXPECT_EQ(sizes_of(*data.predict_dataloader()), (std::vector<std::int64_t>{2, 2, 1}));
}

TEST(DataModule, ShuffleConcernsTheTrainingSamplesOnly) {
  FiveSamples data({.batch_size = 5, .seed = 7});
  EXPECT_TRUE(data.train_dataloader()->options().shuffle);
  EXPECT_EQ(data.train_dataloader()->options().seed, 7);
  for (int epoch = 0; epoch < 3; ++epoch)
    for (const Batch& batch : *data.val_dataloader()) EXPECT_TRUE(same(batch[0], at::arange(5)));
}

// The four files of a set: two images of 1 x 2 pixels, {51, 255} and {0, 128}.
void write_mnist(const std::filesystem::path& folder) {
  const std::string images{0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 51, char(255), 0, char(128)};
  const std::string labels{0, 0, 8, 1, 0, 0, 0, 2, 3, 9};
  for (const char* kind : {"train", "t10k"}) {
    std::ofstream(folder / (std::string(kind) + "-images-idx3-ubyte"), std::ios::binary) << images;
    std::ofstream(folder / (std::string(kind) + "-labels-idx1-ubyte"), std::ios::binary) << labels;
  }
}

template <class Set>
void expect_pixels_from_0_to_1(const std::filesystem::path& folder) {
  Set data({.root = folder}, {.shuffle = false});
  data.prepare();
  for (const auto& loader : {data.train_dataloader(), data.val_dataloader()}) {
    Batch batch;
    ASSERT_TRUE(loader->next(batch));
    batch = data.on_after_batch_transfer(std::move(batch));
    EXPECT_TRUE(same(batch[0].flatten(), at::tensor({51.F / 255, 1.F, 0.F, 128.F / 255})));
    EXPECT_TRUE(same(batch[1], at::tensor({3, 9}, at::kLong)));
  }
}

TEST(Mnist, PixelsAreDividedBy255) {
  const Scratch scratch;
  write_mnist(scratch.folder());
  expect_pixels_from_0_to_1<Mnist>(scratch.folder());
  expect_pixels_from_0_to_1<FashionMnist>(scratch.folder());
}

}  // namespace
}  // namespace kindling
