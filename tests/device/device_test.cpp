#include "kindling/device/device.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "kindling/base/error.h"
#include "kindling/device/transfer_counts.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

TEST(Device, CpuIsTheHost) {
  EXPECT_TRUE(cpu().is_cpu());
  EXPECT_EQ(cpu().str(), "cpu");
}

TEST(Device, GpuWithoutANumberIsTheFirst) {
  EXPECT_EQ(gpu(), gpu(0));
  EXPECT_EQ(gpu(3).index(), 3);
  EXPECT_FALSE(gpu().is_cpu());
}

TEST(Device, ACardThatDoesNotExistIsAnErrorOnlyWhenItIsUsed) {
  const Device missing = gpu(99);
  EXPECT_EQ(missing.index(), 99);
  EXPECT_THROW(at::ones({1}, at::device(missing)), c10::Error);
}

TEST(Device, IndexOutOfRangeIsRefusedByName) {
  EXPECT_NE(error_text<DeviceError>([] { gpu(-1); }).find("gpu(-1): the GPU index is out of range"),
            std::string::npos);
  EXPECT_NE(error_text<DeviceError>([] { try_gpu(-3); }).find("gpu(-3)"), std::string::npos);
  EXPECT_NE(error_text<DeviceError>([] { gpu(128); }).find("gpu(128)"), std::string::npos);
  EXPECT_NE(error_text<DeviceError>([] { first_gpus(-2); }).find("num_gpus = -2"), std::string::npos);
}

TEST(Device, NoCardsAsked) { EXPECT_TRUE(first_gpus(0).empty()); }

// The behaviour that Dive into Deep Learning promises on a machine without GPUs.
class WithoutCards : public testing::Test {
 protected:
  void SetUp() override {
    if (num_gpus() > 0) GTEST_SKIP() << "this machine has " << num_gpus();
  }
};

TEST_F(WithoutCards, EverythingFallsBackToTheCpu) {
  EXPECT_EQ(num_gpus(), 0);
  EXPECT_EQ(try_gpu(), cpu());
  EXPECT_EQ(try_gpu(1), cpu());
  EXPECT_EQ(try_all_gpus(), std::vector<Device>{cpu()});
  EXPECT_TRUE(first_gpus(2).empty());
  EXPECT_TRUE(first_gpus(-1).empty());
}

TEST_F(WithoutCards, GpuNamesCuda) { EXPECT_EQ(gpu(1).str(), "cuda:1"); }

TEST_F(WithoutCards, AReasonIsGiven) {
  const std::string reason = gpu_unavailable_reason();
  const bool known = reason == "this LibTorch is a CPU build" ||
                     reason == "the program is not linked to LibTorch's torch_cuda" ||
                     reason == "no NVIDIA driver is loaded" || reason == "the driver reports no usable GPU" ||
                     reason.starts_with("hidden by CUDA_VISIBLE_DEVICES");
  EXPECT_TRUE(known) << reason;
}

// The names of Dive into Deep Learning for the device under test.
class NamedDevice : public OnDevice {};
KINDLING_RUN_ON_DEVICES(NamedDevice);

TEST_P(NamedDevice, CpuOrGpuGivesIt) {
  EXPECT_EQ(device_.is_cpu() ? cpu() : gpu(device_.index()), device_);
  EXPECT_EQ(gpu() == device_, device_.index() == 0);
}

TEST_P(NamedDevice, IsCounted) {
  if (device_.is_cpu()) GTEST_SKIP() << "num_gpus() counts cards";
  EXPECT_GT(num_gpus(), device_.index());
}

TEST_P(NamedDevice, IsTriedBeforeTheCpu) {
  EXPECT_EQ(try_gpu(device_.is_cpu() ? num_gpus() : device_.index()), device_);
}

TEST_P(NamedDevice, IsAmongAllWhenItIsACard) {
  const auto all = try_all_gpus();
  const bool is_listed = std::find(all.begin(), all.end(), device_) != all.end();
  EXPECT_EQ(is_listed, !device_.is_cpu() || num_gpus() == 0);
}

class TensorsOnDevice : public OnDevice {};
KINDLING_RUN_ON_DEVICES(TensorsOnDevice);

TEST_P(TensorsOnDevice, AreMadeWhereAskedAndOnTheCpuByDefault) {
  EXPECT_EQ(at::ones({2}).device(), cpu());
  const at::Tensor ones = at::ones({2}, at::device(device_));
  EXPECT_EQ(ones.device(), device_);
  EXPECT_EQ((ones + ones).device(), device_);
  EXPECT_TRUE(same(ones + ones, at::full({2}, 2.f)));
}

TEST(TransferCounts, DifferenceIsTakenMemberByMember) {
  const TransferCounts later{5, 40, 3, 24, 2}, earlier{1, 8, 1, 4, 1};
  EXPECT_EQ(later - earlier, (TransferCounts{4, 32, 2, 20, 1}));
}

TEST(TransferCounts, NamesEveryMember) {
  const TransferCounts counts{1, 2, 3, 4, 5};
  std::vector<std::pair<std::string, std::int64_t>> named;
  for (const auto& [name, count] : TransferCounts::kNames) named.emplace_back(name, counts.*count);
  EXPECT_EQ(named, (std::vector<std::pair<std::string, std::int64_t>>{{"host_waits", 5},
                                                                      {"device_to_host_copies", 3},
                                                                      {"device_to_host_bytes", 4},
                                                                      {"host_to_device_copies", 1},
                                                                      {"host_to_device_bytes", 2}}));
  EXPECT_EQ(named.size() * sizeof(std::int64_t), sizeof(TransferCounts));  // a new one is named here, too
}

TEST(TransferCounts, AreOfTheCallingThread) {
  const TransferCounts before = transfer_counts();
  std::thread([] {
    EXPECT_EQ(transfer_counts(), TransferCounts{});
    transfer_counts().host_waits = 7;
  }).join();
  EXPECT_EQ(transfer_counts(), before);
}

}  // namespace
}  // namespace kindling
