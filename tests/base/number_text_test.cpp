#include "kindling/base/number_text.h"

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

TEST(NumberText, NamesNonFiniteNumbers) {
  EXPECT_EQ(number_text(std::nan("")), "nan");
  EXPECT_EQ(number_text(-std::nan("")), "nan");
  EXPECT_EQ(number_text(kInf), "inf");
  EXPECT_EQ(number_text(-kInf), "-inf");
}

TEST(ShortText, TakesTheShorterNotation) {
  EXPECT_EQ(short_text(0, 3), "0");
  EXPECT_EQ(short_text(0.08123, 3), "0.0812");
  EXPECT_EQ(short_text(0.975, 3), "0.975");
  EXPECT_EQ(short_text(0.001, 3), "1e-3");
  EXPECT_EQ(short_text(0.01, 3), "0.01");
  EXPECT_EQ(short_text(-0.000512, 3), "-5.12e-4");
  EXPECT_EQ(short_text(1.5e-12, 3), "1.5e-12");
  EXPECT_EQ(short_text(1e-100, 3), "1e-100");
}

TEST(ShortText, NeverRoundsIntegerDigits) {
  EXPECT_EQ(short_text(84.149, 3), "84.1");
  EXPECT_EQ(short_text(99.97, 3), "100");
  EXPECT_EQ(short_text(612.4, 3), "612");
  EXPECT_EQ(short_text(12345.6, 3), "12346");
  EXPECT_EQ(short_text(1000, 3), "1000");
  EXPECT_EQ(short_text(2.5e6, 3), "2.5e6");
}

TEST(ShortText, NamesNonFiniteNumbers) {
  EXPECT_EQ(short_text(std::nan(""), 3), "nan");
  EXPECT_EQ(short_text(-std::nan(""), 3), "nan");
  EXPECT_EQ(fixed_text(-std::nan(""), 3), "nan");
  EXPECT_EQ(short_text(-std::numeric_limits<double>::infinity(), 3), "-inf");
}

TEST(FixedText, LimitsItsDecimals) {
  EXPECT_EQ(fixed_text(0.34125, 3), "0.341");
  EXPECT_EQ(fixed_text(2, 4), "2.0000");
  EXPECT_EQ(fixed_text(1e300, 4), "1e300");
}

TEST(BytesText, ChoosesTheUnit) {
  EXPECT_EQ(bytes_text(0, 3), "0 B");
  EXPECT_EQ(bytes_text(1023, 3), "1023 B");
  EXPECT_EQ(bytes_text(814120, 3), "795 KiB");
  EXPECT_EQ(bytes_text(1181116006, 3), "1.1 GiB");
  EXPECT_EQ(bytes_text(2199023255552000, 3), "2000 TiB");
}

TEST(ClockText, ShowsHoursOnlyWhenThereAreAny) {
  EXPECT_EQ(clock_text(7.28), "00:07");
  EXPECT_EQ(clock_text(3599), "59:59");
  EXPECT_EQ(clock_text(3723), "1:02:03");
  EXPECT_EQ(clock_text(std::nan("")), "--:--");
  EXPECT_EQ(clock_text(std::numeric_limits<double>::infinity()), "--:--");
}

}  // namespace
}  // namespace kindling
