#include "device/shared_setting.h"

#include <gtest/gtest.h>

namespace kindling {
namespace {

int the_setting = 7;

TEST(SharedSetting, ComesBackWithTheLastOfItsUsers) {
  the_setting = 7;
  SharedSetting<int> setting([] { return the_setting; }, [](const int& value) { the_setting = value; });
  setting.take(1);
  setting.take(2);
  setting.give_back();
  EXPECT_EQ(the_setting, 2) << "one still needs it";
  setting.give_back();
  EXPECT_EQ(the_setting, 7);
  the_setting = 8;
  setting.take(1);
  setting.give_back();
  EXPECT_EQ(the_setting, 8) << "what it was this time";
}

}  // namespace
}  // namespace kindling
