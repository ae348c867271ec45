#include "kindling/base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

namespace kindling {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(NumberText, WritesWholeNumbersWithoutFractionOrExponent) {
  EXPECT_EQ(number_text(0), "0");
  EXPECT_EQ(number_text(1000000), "1000000");
  EXPECT_EQ(number_text(-3), "-3");
  EXPECT_EQ(number_text(9007199254740991.0), "9007199254740991");
  EXPECT_EQ(number_text(1e22), "1e+22");
}

TEST(NumberText, ReadsBackAsTheSameDouble) {
  for (const double value :
       {0.1, 1.0 / 3, 1e-300, 5e-324, 1.7976931348623157e308, 0.30000000000000004, -2.5e-7}) {
    EXPECT_EQ(std::strtod(number_text(value).c_str(), nullptr), value);
  }
  EXPECT_EQ(number_text(0.001), "0.001");
  EXPECT_TRUE(std::signbit(std::strtod(number_text(-0.0).c_str(), nullptr)));
}

TEST(NumberText, NamesWhatIsNotFinite) {
  EXPECT_EQ(number_text(std::nan("")), "nan");
  EXPECT_EQ(number_text(kInf), "inf");
  EXPECT_EQ(number_text(-kInf), "-inf");
}

TEST(JsonNumber, IsNullWhenNotFinite) {
  EXPECT_EQ(json_number(std::nan("")), "null");
  EXPECT_EQ(json_number(-kInf), "null");
  EXPECT_EQ(json_number(0.25), "0.25");
}

TEST(JsonString, EscapesWhatJsonForbids) {
  EXPECT_EQ(json_string("val_acc"), "\"val_acc\"");
  EXPECT_EQ(json_string("a\"b\\c\nd"), R"("a\"b\\c\nd")");
  EXPECT_EQ(json_string(std::string("\0\x1b\x7f", 3)), R"("\u0000\u001b\u007f")");
  EXPECT_EQ(json_string("grüße"), "\"grüße\"");
}

}  // namespace
}  // namespace kindling
