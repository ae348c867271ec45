// Samples that stay on the device: the batches are those that travel.
#include <ATen/Functions.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <functional>

#include "fake_accelerator.h"
#include "kindling/base/error.h"
#include "kindling/data/collated_dataset.h"
#include "kindling/data/data_loader.h"
#include "kindling/tensors/move.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

// 23 samples: two tensors, bytes and numbers.
std::vector<at::Tensor> two_tensors() {
  return {at::arange(23 * 6).remainder(251).to(at::kByte).view({23, 2, 3}), at::arange(23, at::kFloat) * 10};
}

std::shared_ptr<const Dataset> set_of(std::vector<at::Tensor> tensors) {
  return std::make_shared<TensorDataset>(std::move(tensors));
}

// Returns what a cursor yields, on the host: tensors of all batches and the samples' indices.
std::vector<at::Tensor> rest_of_epoch(DataLoader::Cursor& cursor) {
  std::vector<at::Tensor> seen;
  for (Batch batch; cursor.next(batch);) {
    for (const at::Tensor& tensor : batch.tensors()) seen.push_back(tensor.cpu().clone());
    seen.push_back(cursor.indices());
  }
  return seen;
}

using Prepare = std::function<void(DataLoader::Cursor&)>;

// Three epochs, and one from its second batch on.
std::vector<at::Tensor> epochs_of(DataLoaderOptions options, Device device, const Prepare& prepare) {
  DataLoader loader(set_of(two_tensors()), options);
  DataLoader::Cursor cursor(loader);
  cursor.stage_for(device);
  if (!device.is_cpu()) cursor.cache_on_device();
  prepare(cursor);
  std::vector<at::Tensor> seen;
  for (const auto& [epoch, batch] : {std::pair{0, 0}, {1, 0}, {5, 0}, {2, 1}}) {
    cursor.seek(epoch, batch);
    for (at::Tensor& tensor : rest_of_epoch(cursor)) seen.push_back(std::move(tensor));
  }
  return seen;
}

TEST(FakeResident, BatchesAreThoseOfTheHost) {
  const std::vector<std::pair<std::string, Prepare>> ways{
      {"all", [](auto&) {}},
      {"shard", [](auto& cursor) { cursor.shard(1, 3); }},
      {"in order", [](auto& cursor) { cursor.keep_order(); }}};
  for (const bool shuffle : {false, true})
    for (const bool drop_last : {false, true})
      for (const auto& [name, prepare] : ways) {
        const fake::LateCopies late;
        const DataLoaderOptions options{
            .batch_size = 3, .shuffle = shuffle, .drop_last = drop_last, .seed = 3, .resident = "on"};
        const auto expected = epochs_of(options, cpu(), prepare);
        fake::reset_counts();
        const auto seen = epochs_of(options, fake::device(1), prepare);
        ASSERT_EQ(seen.size(), expected.size());
        for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_TRUE(same(seen[i], expected[i])) << name;
        // Two tensors, and the order where there is a new one.
        const bool is_one_order = (!shuffle || name == "in order") && name != "shard";
        EXPECT_EQ(fake::counts().host_to_device_copies, 2 + (is_one_order ? 1 : 4)) << name;
      }
}

TEST(FakeResident, BatchesAreOnTheDeviceAndNotShared) {
  DataLoader loader(set_of(two_tensors()), {.batch_size = 4});
  loader.stage_for(fake::device(0));
  loader.cache_on_device();
  Batch first, again;
  loader.start_epoch(0);
  loader.next(first);
  EXPECT_EQ(first[0].device(), fake::device(0));
  first[1].zero_();
  loader.start_epoch(1);
  loader.next(again);
  EXPECT_TRUE(same(again[1], at::arange(4, at::kFloat) * 10));
}

TEST(FakeResident, CursorsShareOneCopyAndTheLastOneFreesIt) {
  DataLoader loader(set_of(two_tensors()), {.batch_size = 4});
  const std::int64_t before = fake::counts().live_bytes[0];
  {
    DataLoader::Cursor one(loader), two(loader);
    for (DataLoader::Cursor* const cursor : {&one, &two}) {
      cursor->stage_for(fake::device(0));
      cursor->cache_on_device();
    }
    EXPECT_EQ(fake::counts().live_bytes[0] - before, 23 * (6 + 4));
    one.stage_for(fake::device(1));  // its batches go elsewhere: they travel
    one.seek(0);
    Batch batch;
    one.next(batch);
    EXPECT_TRUE(batch[0].is_pinned());
    one.cache_on_device();
    one.next(batch);
    EXPECT_EQ(batch[0].device(), fake::device(1));
  }
  EXPECT_EQ(fake::counts().live_bytes[0], before);
}

TEST(FakeResident, AutoCachesUpToAQuarterOfTheFreeMemory) {
  const auto is_resident = [](const std::string& resident, std::int64_t free_bytes) {
    const fake::FreeBytes free(free_bytes);
    DataLoader loader(set_of(two_tensors()), {.batch_size = 4, .resident = resident});
    loader.stage_for(fake::device(0));
    loader.cache_on_device();
    Batch batch;
    loader.start_epoch(0);
    loader.next(batch);
    return !batch[0].is_cpu();
  };
  constexpr std::int64_t kBytes = 23 * (6 + 4);
  EXPECT_TRUE(is_resident("auto", 4 * kBytes));
  EXPECT_FALSE(is_resident("auto", 4 * kBytes - 1));
  EXPECT_TRUE(is_resident("on", kBytes));
  EXPECT_FALSE(is_resident("off", 4 * kBytes));
}

// The error of a set that is to be resident.
std::string refusal_of(std::shared_ptr<const Dataset> set) {
  DataLoader loader(std::move(set), {.batch_size = 4, .resident = "on"});
  loader.stage_for(fake::device(0));
  try {
    loader.cache_on_device();
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

class Noisy : public TensorDataset {
 public:
  using TensorDataset::TensorDataset;
  void gather(const at::Tensor& indices, Batch& batch) const override {
    TensorDataset::gather(indices, batch);
    batch.tensors()[1].add_(1000);
  }
};

TEST(FakeResident, OnReportsWhyItIsImpossible) {
  {
    const fake::FreeBytes free(229);
    const std::string text = refusal_of(set_of(two_tensors()));
    for (const char* part : {"data.resident = \"on\"", "230 bytes of samples",
                             "fake:0 has only 229 free bytes", "use \"auto\" or \"off\""})
      EXPECT_NE(text.find(part), std::string::npos) << part << " is not in " << text;
  }
  const auto sample = [](std::int64_t i) { return Batch{at::full({1}, i)}; };
  const auto collate = [](const std::vector<Batch>& samples) { return samples.front(); };
  EXPECT_NE(refusal_of(std::make_shared<CollatedDataset>(8, sample, collate)).find("not a TensorDataset"),
            std::string::npos);
  EXPECT_NE(refusal_of(std::make_shared<Noisy>(two_tensors())).find("not a TensorDataset"),
            std::string::npos);
  at::Tensor untracked;
  {
    const c10::InferenceMode inference;
    untracked = at::ones({8});
  }
  EXPECT_NE(refusal_of(set_of({untracked})).find("inference mode"), std::string::npos);
  EXPECT_THROW(DataLoader(set_of(two_tensors()), {.resident = "true"}), DataError);
}

TEST(FakeResident, ACustomSetMakesItsOwnBatches) {
  DataLoader loader(std::make_shared<Noisy>(two_tensors()), {.batch_size = 4});
  loader.stage_for(fake::device(0));
  loader.cache_on_device();
  Batch batch;
  loader.start_epoch(0);
  loader.next(batch);
  EXPECT_TRUE(same(batch[1], at::arange(4, at::kFloat) * 10 + 1000));
}

TEST(FakeResident, TensorsThatAreWrittenToAreReadAgain) {
  std::vector<at::Tensor> tensors = two_tensors();
  DataLoader loader(set_of(tensors), {.batch_size = 4});
  loader.stage_for(fake::device(0));
  loader.cache_on_device();
  Batch batch;
  loader.start_epoch(0);
  loader.next(batch);
  EXPECT_FALSE(batch[1].is_cpu());
  tensors[1].narrow(0, 4, 2).fill_(-1);  // in the middle of an epoch, through a view
  loader.next(batch);
  EXPECT_TRUE(same(batch[1], at::tensor({-1.F, -1.F, 60.F, 70.F})));
  EXPECT_TRUE(batch[1].is_pinned());
  loader.cache_on_device();  // as they are now
  loader.start_epoch(1);
  loader.next(batch);
  loader.next(batch);
  EXPECT_FALSE(batch[1].is_cpu());
  EXPECT_TRUE(same(batch[1], at::tensor({-1.F, -1.F, 60.F, 70.F})));
}

TEST(FakeResident, NothingChangesOnTheCpu) {
  DataLoader loader(set_of(two_tensors()), {.batch_size = 4, .resident = "on"});
  loader.cache_on_device();
  const std::int64_t before = fake::counts().live_bytes[0];
  Batch batch;
  loader.start_epoch(0);
  loader.next(batch);
  EXPECT_TRUE(batch[0].is_cpu());
  EXPECT_EQ(fake::counts().live_bytes[0], before);
}

}  // namespace
}  // namespace kindling
