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

// Different sets may be made with the same function, and the samples may be others in a second fit.
TEST(DataModule, LoadersHaveTheTensorsOfTheCall) {
  struct Grows : DataModule {
    Grows() : DataModule({.batch_size = 2}) {}
    std::shared_ptr<DataLoader> train_dataloader() override { return train_loader_of({values}); }
    std::shared_ptr<DataLoader> val_dataloader() override { return val_loader_of({values.slice(0, 0, 2)}); }
    std::shared_ptr<DataLoader> test_dataloader() override { return val_loader_of({values + 1}); }
    std::vector<NamedLoader> more_val_dataloaders() override {
      return {{"far", val_loader_of({values + 2})}};
    }
    std::shared_ptr<DataLoader> none() { return val_loader_of({}); }
    at::Tensor values = at::arange(4).repeat({2, 1}).t();  // not contiguous
  } data;
  const auto first_value = [](const std::shared_ptr<DataLoader>& loader) {
    return (*loader->begin())[0][0][0].item<std::int64_t>();
  };
  EXPECT_EQ(data.train_dataloader(), data.train_dataloader());
  EXPECT_EQ(data.test_dataloader(), data.test_dataloader());  // new tensors of the same values
  EXPECT_EQ(first_value(data.val_dataloader()), 0);
  EXPECT_EQ(first_value(data.test_dataloader()), 1);
  EXPECT_EQ(first_value(data.more_val_dataloaders()[0].loader), 2);
  EXPECT_EQ(data.val_dataloader()->num_samples(), 2);
  EXPECT_EQ(data.none(), nullptr);
  data.train_dataloader()->start_epoch(3);
  data.values = at::arange(10).unsqueeze(1);
  EXPECT_EQ(data.train_dataloader()->num_samples(), 10);
  EXPECT_EQ(data.train_dataloader()->next_epoch(), 4);
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
