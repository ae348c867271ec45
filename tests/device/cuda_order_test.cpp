#include "device/cuda_order.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "support/stand_ins.h"

namespace kindling {
namespace {

std::vector<GpuInfo> three_cards() {
  std::vector<GpuInfo> cards(3);
  cards[0].pci_bus_id = "00000000:18:00.0";
  cards[1].pci_bus_id = "00000000:3B:00.0";
  cards[2].pci_bus_id = "00000001:3B:00.0";
  return cards;
}

// Returns "0" for cuda:0, otherwise why the GPU cannot be used.
std::vector<std::string> card_numbers(std::int64_t num_usable) {
  auto cards = three_cards();
  assign_ordinals(cards, num_usable, kStandInCuda.c_str());
  std::vector<std::string> numbers;
  for (const GpuInfo& card : cards) {
    EXPECT_EQ(card.device.has_value(), card.why_not_usable.empty());
    numbers.push_back(card.device ? std::to_string(card.device->index()) : card.why_not_usable);
  }
  return numbers;
}

using CardNumbersOf = std::vector<std::string>;
const std::string kNotOffered = "the CUDA driver does not offer it";

class CardNumbers : public testing::Test {
 protected:
  void SetUp() override {
    library_ = ::dlopen(kStandInCuda.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << ::dlerror();
  }
  void TearDown() override { ::dlclose(library_); }

 private:
  void* library_ = nullptr;
};

TEST_F(CardNumbers, AreThoseOfTheDriverByPciAddress) {
  const Environment order("KINDLING_STAND_IN_CUDA", "0001:3b:00.0,0000:18:00.0");
  EXPECT_EQ(card_numbers(2), (CardNumbersOf{"1", kNotOffered, "0"}));
}

TEST_F(CardNumbers, OfACardInSlicesIsTheFirst) {
  const Environment order("KINDLING_STAND_IN_CUDA", "0000:3b:00.0,0000:18:00.0,0000:18:00.0");
  EXPECT_EQ(card_numbers(3), (CardNumbersOf{"1", "0", kNotOffered}));
}

TEST_F(CardNumbers, NameWhatHidesACard) {
  const Environment visible("CUDA_VISIBLE_DEVICES", "2"), order("KINDLING_STAND_IN_CUDA", "0001:3b:00.0");
  const std::string hidden = "hidden by CUDA_VISIBLE_DEVICES=\"2\"";
  EXPECT_EQ(card_numbers(1), (CardNumbersOf{hidden, hidden, "0"}));
}

TEST_F(CardNumbers, AreOnlyGivenToCardsThatCanBeUsed) {
  const Environment order("KINDLING_STAND_IN_CUDA", "0000:18:00.0,0000:3b:00.0");
  const std::string why = gpu_unavailable_reason();
  EXPECT_EQ(card_numbers(1), (CardNumbersOf{"0", why, kNotOffered}));
  EXPECT_EQ(card_numbers(0), (CardNumbersOf{why, why, why}));
}

TEST_F(CardNumbers, AreNotGivenBeforeTheDriverHasBeenStarted) {
  EXPECT_EQ(card_numbers(3), (CardNumbersOf{kNotOffered, kNotOffered, kNotOffered}));
}

TEST(CardNumbersWithoutDriver, DoNotLoadItForTheQuestion) {
  EXPECT_EQ(card_numbers(3), (CardNumbersOf{kNotOffered, kNotOffered, kNotOffered}));
  EXPECT_EQ(::dlopen(kStandInCuda.c_str(), RTLD_LAZY | RTLD_NOLOAD), nullptr);
}

}  // namespace
}  // namespace kindling
