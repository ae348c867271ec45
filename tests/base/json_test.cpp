#include "kindling/base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace kindling {
namespace {

TEST(JsonNumber, IsNullWhenNotFinite) {
  EXPECT_EQ(json_number(std::nan("")), "null");
  EXPECT_EQ(json_number(-std::numeric_limits<double>::infinity()), "null");
  EXPECT_EQ(json_number(0.25), "0.25");
}

TEST(JsonString, EscapesForbiddenCharacters) {
  EXPECT_EQ(json_string("val_acc"), "\"val_acc\"");
  EXPECT_EQ(json_string("a\"b\\c\nd"), R"("a\"b\\c\nd")");
  EXPECT_EQ(json_string(std::string("\0\x1b\x7f", 3)), R"("\u0000\u001b\u007f")");
  EXPECT_EQ(json_string("grüße"), "\"grüße\"");
}

}  // namespace
}  // namespace kindling
