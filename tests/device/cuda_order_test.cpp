#include "device/cuda_order.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "support/stand_ins.h"

namespace kindling {
namespace {

std::vector<CardInfo> three_cards() {
  std::vector<CardInfo> cards(3);
  cards[0].uuid = "GPU-1111aaaa-0";
  cards[1].uuid = "GPU-1111bbbb-1";
  cards[2].uuid = "GPU-2222cccc-2";
  cards[0].pci_bus_id = "00000000:18:00.0";
  cards[1].pci_bus_id = "00000000:3B:00.0";
  cards[2].pci_bus_id = "00000001:3B:00.0";
  return cards;
}

constexpr std::nullopt_t kHidden = std::nullopt;

TEST(CudaOrder, IsThatOfTheBusWithoutAList) {
  EXPECT_EQ(cuda_order_of_list(three_cards(), nullptr), (CudaOrder{0, 1, 2}));
}

TEST(CudaOrder, FollowsCudaVisibleDevices) {
  const struct {
    const char* visible;
    CudaOrder order;
  } cases[] = {
      {"2,0", {1, kHidden, 0}},
      {"1", {kHidden, 0, kHidden}},
      {" 1 , 2 ", {kHidden, 0, 1}},
      {"", {kHidden, kHidden, kHidden}},
      {"-1", {kHidden, kHidden, kHidden}},
      {"0,-1,1", {0, kHidden, kHidden}},  // what is no card ends the list
      {"2,7,0", {kHidden, kHidden, 0}},
      {"1,,0", {kHidden, 0, kHidden}},
      {"0,1,0", {kHidden, kHidden, kHidden}},  // a card twice: CUDA offers none
      {"GPU-2222cccc-2,GPU-1111aaaa-0", {1, kHidden, 0}},
      {"GPU-22,GPU-1111b", {kHidden, 1, 0}},
      {"GPU-1111", {kHidden, kHidden, kHidden}},  // two begin so
      {"GPU-9", {kHidden, kHidden, kHidden}},
      {"GPU-2,0", {1, kHidden, 0}},
      {"MIG-1111aaaa-0", {kHidden, kHidden, kHidden}},
      {"18446744073709551616", {kHidden, kHidden, kHidden}},
      {"one", {kHidden, kHidden, kHidden}},
  };
  for (const auto& [visible, order] : cases)
    EXPECT_EQ(cuda_order_of_list(three_cards(), visible), order) << "'" << visible << "'";
}

class CudaDriver : public testing::Test {
 protected:
  void SetUp() override {
    library_ = ::dlopen(kStandInCuda.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << ::dlerror();
  }
  void TearDown() override { ::dlclose(library_); }

 private:
  void* library_ = nullptr;
};

TEST_F(CudaDriver, IsMatchedByPciBusId) {
  const Environment order("KINDLING_STAND_IN_CUDA", "0001:3b:00.0,0000:18:00.0");
  EXPECT_EQ(cuda_order_of_driver(three_cards(), kStandInCuda.c_str()), (CudaOrder{1, kHidden, 0}));
}

TEST_F(CudaDriver, MayCountSlicesOfACard) {
  const Environment order("KINDLING_STAND_IN_CUDA", "0000:3b:00.0,0000:18:00.0,0000:18:00.0");
  EXPECT_EQ(cuda_order_of_driver(three_cards(), kStandInCuda.c_str()), (CudaOrder{1, 0, kHidden}));
}

TEST_F(CudaDriver, MayOfferNoCard) {
  const Environment order("KINDLING_STAND_IN_CUDA", "");
  EXPECT_EQ(cuda_order_of_driver(three_cards(), kStandInCuda.c_str()),
            (CudaOrder{kHidden, kHidden, kHidden}));
}

TEST_F(CudaDriver, IsNotAskedBeforeItHasBeenStarted) {
  EXPECT_EQ(cuda_order_of_driver(three_cards(), kStandInCuda.c_str()), std::nullopt);
}

TEST(CudaOrder, DriverIsNotLoadedForTheQuestion) {
  EXPECT_EQ(cuda_order_of_driver(three_cards(), kStandInCuda.c_str()), std::nullopt);
  EXPECT_EQ(::dlopen(kStandInCuda.c_str(), RTLD_LAZY | RTLD_NOLOAD), nullptr);
}

}  // namespace
}  // namespace kindling
