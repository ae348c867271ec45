#include "formats/tables/csv_number.h"

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace kindling {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

template <class Float>
constexpr auto kPowersOfTen = [] {
  std::array<Float, 20> powers{1};
  for (std::size_t i = 1; i < powers.size(); ++i) powers[i] = powers[i - 1] * 10;  // exact up to 1e22
  return powers;
}();

// The digits at the beginning of eight bytes.
struct Digits {
  std::size_t count;  // 0 to 8
  std::uint64_t value;
};

// Joins eight digits, one in each byte, to a number: neighbours to numbers below 100, then below 10,000, then
// below 100,000,000.
std::uint64_t joined_digits(std::uint64_t digits) {
  const std::uint64_t pairs = (digits * 10 + (digits >> 8)) & 0x00FF00FF00FF00FF;
  const std::uint64_t fours = (pairs * 100 + (pairs >> 16)) & 0x0000FFFF0000FFFF;
  return (fours * 10'000 + (fours >> 32)) & 0xFFFFFFFF;
}

// For machines whose first byte is the lowest one. A byte that is no digit may change those after it, but not
// those before.
Digits digits_of_eight(const char* at) {
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, at, sizeof bytes);
  const std::uint64_t digits = bytes ^ 0x3030303030303030;
  const std::uint64_t others = (digits | (digits + 0x7676767676767676)) & 0x8080808080808080;
  const auto count = static_cast<std::size_t>(std::countr_zero(others)) / 8;
  if (count == 0) return {0, 0};
  return {count, joined_digits(digits << (64 - 8 * count))};  // with zeros before them
}

// A call for each group of digits would take a tenth of the time of reading a table.
[[gnu::always_inline]] inline const char* take_digits(const char* at, const char* end, std::uint64_t& value) {
  std::uint64_t number = value;
  while (std::endian::native == std::endian::little && end - at >= 8) {
    const Digits digits = digits_of_eight(at);
    number = number * kPowersOfTen<std::uint64_t>[digits.count] + digits.value;
    at += digits.count;
    if (digits.count < 8) {
      value = number;
      return at;
    }
  }
  for (; at != end && is_digit(*at); ++at) number = number * 10 + static_cast<std::uint64_t>(*at - '0');
  value = number;
  return at;
}

// Divides with a single rounding. Returns false where this takes more than one division.
bool divide_exactly(std::uint64_t value, std::size_t power, double& number) {
  if (value < std::uint64_t{1} << 53) {
    number = static_cast<double>(value) / kPowersOfTen<double>[power];
    return true;
  }
  if constexpr (std::numeric_limits<long double>::digits == 64) {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return false;
    const long double quotient =
        static_cast<long double>(static_cast<std::int64_t>(value)) / kPowersOfTen<long double>[power];
    // Rounding the 64 bits again, to 53, differs from rounding once only where they end at a midpoint.
    std::uint64_t bits = 0;
    std::memcpy(&bits, &quotient, sizeof bits);
    number = static_cast<double>(quotient);
    return (bits & 0x7FF) != 0x400;
  }
  return false;
}

// Takes groups of three digits, each after a separator. Returns nullptr if there are other numbers of digits.
const char* take_groups(const char* at, const char* end, std::uint64_t& value, char separator) {
  while (at != end && *at == separator) {
    if (end - at < 4 || !is_digit(at[1]) || !is_digit(at[2]) || !is_digit(at[3])) return nullptr;
    value =
        value * 1000 + static_cast<std::uint64_t>(100 * (at[1] - '0') + 10 * (at[2] - '0') + (at[3] - '0'));
    at += 4;
    if (at != end && is_digit(*at)) return nullptr;
  }
  return at;
}

// Reads the usual numbers, of up to 19 digits without an exponent, several times as fast as std::from_chars.
const char* take_short_number(const char* at, const char* end, double& number, NumberMarks marks) {
  const bool is_negative = *at == '-';
  if (is_negative) ++at;
  std::uint64_t value = 0;
  const char* const whole = at;
  at = take_digits(at, end, value);
  auto num_digits = at - whole;
  if (marks.thousands != 0 && at != end && *at == marks.thousands) {
    if (num_digits == 0 || num_digits > 3 || *whole == '0') return nullptr;
    at = take_groups(at, end, value, marks.thousands);
    if (at == nullptr) return nullptr;
    num_digits = at - whole;  // with separators, which only make it larger
  }
  std::size_t power = 0;
  if (at != end && *at == marks.decimal) {
    const char* const fraction = ++at;
    at = take_digits(at, end, value);
    power = static_cast<std::size_t>(at - fraction);
    num_digits += at - fraction;
  }
  const bool has_exponent = at != end && (*at == 'e' || *at == 'E');
  if (num_digits == 0 || num_digits > 19 || has_exponent || !divide_exactly(value, power, number))
    return nullptr;
  if (is_negative) number = -number;
  return at;
}

}  // namespace

const char* take_csv_number(const char* begin, const char* end, double& number, NumberMarks marks) {
  if (begin == end || (!is_digit(*begin) && *begin != '-' && *begin != marks.decimal)) return nullptr;
  if (const char* const after = take_short_number(begin, end, number, marks)) return after;
  if (marks.decimal != '.' || marks.thousands != 0) return nullptr;
  const auto [after, error] = std::from_chars(begin, end, number);
  return error == std::errc{} && std::isfinite(number) ? after : nullptr;
}

std::optional<double> csv_number(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  double number = 0;
  const char* const end = text.data() + text.size();
  if (take_csv_number(text.data(), end, number) != end || text.empty()) return std::nullopt;
  return number;
}

}  // namespace kindling
