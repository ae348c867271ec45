#include "device/shared_setting.h"

#include <gtest/gtest.h>

namespace kindling {
namespace {

int the_setting = 7;

TEST(SharedSetting, ComesBackWithTheLastOfItsUsers) {
  the_setting = 7;
  SharedSetting<int> setting([] { return the_setting; }, [](const int& value) { the_setting = value; });
  const auto outer = setting.take(1), inner = setting.take(2);
  EXPECT_EQ(the_setting, 2);
  setting.give_back(inner);
  EXPECT_EQ(the_setting, 1) << "one still needs it";
  const auto later = setting.take(3);
  setting.give_back(outer);
  EXPECT_EQ(the_setting, 3) << "so does one that came later";
  setting.give_back(later);
  EXPECT_EQ(the_setting, 7);
  the_setting = 8;
  setting.give_back(setting.take(1));
  EXPECT_EQ(the_setting, 8) << "what it was this time";
}

}  // namespace
}  // namespace kindling
