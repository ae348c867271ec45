#include "formats/tables/csv_number.h"

#include <gtest/gtest.h>

#include <charconv>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <string>

namespace kindling {
namespace {

TEST(CsvNumber, EqualsFromCharsInEveryBit) {
  std::mt19937_64 random(0);
  for (int i = 0; i < 100'000; ++i) {
    const std::size_t num_digits = 1 + random() % 20, point = random() % (num_digits + 1);
    std::string text = random() % 2 == 0 ? "-" : "";
    for (std::size_t k = 0; k < num_digits; ++k) {
      if (k == point) text += '.';
      text += static_cast<char>('0' + random() % 10);
    }
    double wanted = 0;
    std::from_chars(text.data(), text.data() + text.size(), wanted);
    const double found = csv_number(text).value_or(1e300);
    EXPECT_EQ(std::memcmp(&found, &wanted, sizeof found), 0) << text;
  }
}

TEST(CsvNumber, EqualsFromCharsWithOtherMarks) {
  std::mt19937_64 random(0);
  std::size_t num_taken = 0;
  for (int i = 0; i < 100'000; ++i) {
    const std::size_t num_digits = 1 + random() % 20, point = random() % (num_digits + 1);
    std::string plain = random() % 2 == 0 ? "-" : "", text = plain;
    for (std::size_t k = 0; k < num_digits; ++k) {
      const char digit = static_cast<char>((k == 0 ? '1' : '0') + random() % 9);
      if (k == point) plain += '.', text += ',';
      if (0 < k && k < point && (point - k) % 3 == 0) text += '.';
      plain += digit;
      text += digit;
    }
    double wanted = 0, found = 0;
    std::from_chars(plain.data(), plain.data() + plain.size(), wanted);
    const char* const after =
        take_csv_number(text.data(), text.data() + text.size(), found, {.decimal = ',', .thousands = '.'});
    if (after == nullptr) continue;  // more than 19 digits
    ++num_taken;
    EXPECT_EQ(after, text.data() + text.size()) << text;
    EXPECT_EQ(std::memcmp(&found, &wanted, sizeof found), 0) << text;
  }
  EXPECT_GT(num_taken, 60'000U);
}

TEST(CsvNumber, TakesGroupsOfThreeDigits) {
  const auto taken = [](const std::string& text) {
    double number = 0;
    const char* const after =
        take_csv_number(text.data(), text.data() + text.size(), number, {.decimal = ',', .thousands = '.'});
    return after == text.data() + text.size() ? std::optional(number) : std::nullopt;
  };
  EXPECT_EQ(taken("1.234.567,5"), 1234567.5);
  EXPECT_EQ(taken("1234,5"), 1234.5);
  EXPECT_EQ(taken(",5"), 0.5);
  for (const char* text : {"1.23", "1.2345", "1234.567", ".123", "1.234.56", "0.101", "1.234.", "1,5.000"})
    EXPECT_FALSE(taken(text).has_value()) << text;
}

TEST(CsvNumber, RoundsAtMidpointsOnce) {
  EXPECT_EQ(csv_number("9007199254740993"), 9007199254740992.0);  // 2^53 + 1, a midpoint: to even
  EXPECT_EQ(csv_number("900719925474099.3001"), 900719925474099.25);
  EXPECT_EQ(csv_number("0.5000000000000001110"), 0.5000000000000001);
}

TEST(CsvNumber, IsAllOfTheText) {
  for (const char* text : {"1", "+1", "1.", "01", "1e0", "10E-1", "1.0000000000000000000000"})
    EXPECT_EQ(csv_number(text), 1.0) << text;
  for (const char* text : {"", "+", "-", ".", "+-1", "1x", "1 ", " 1", "1e", "e1", "1.2.3", "1,5", "0x1",
                           "inf", "-inf", "nan", "-nan", "1e999", "--1"})
    EXPECT_FALSE(csv_number(text).has_value()) << text;
}

}  // namespace
}  // namespace kindling
