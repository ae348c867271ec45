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

// Takes eight digits at once if the next eight bytes are digits.
bool take_eight_digits(const char* at, const char* end, std::uint64_t& value) {
  if (std::endian::native != std::endian::little || end - at < 8) return false;
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, at, sizeof bytes);
  const std::uint64_t digits = bytes - 0x3030303030303030;
  if (((digits | (digits + 0x7676767676767676)) & 0x8080808080808080) != 0) return false;
  // Neighbours are joined to numbers below 100, then below 10,000, then below 100,000,000.
  const std::uint64_t pairs = (digits * 10 + (digits >> 8)) & 0x00FF00FF00FF00FF;
  const std::uint64_t fours = (pairs * 100 + (pairs >> 16)) & 0x0000FFFF0000FFFF;
  const std::uint64_t eight = (fours * 10'000 + (fours >> 32)) & 0xFFFFFFFF;
  value = value * 100'000'000 + eight;
  return true;
}

const char* take_digits(const char* at, const char* end, std::uint64_t& value) {
  while (take_eight_digits(at, end, value)) at += 8;
  for (; at != end && is_digit(*at); ++at) value = value * 10 + static_cast<std::uint64_t>(*at - '0');
  return at;
}

template <class Float>
constexpr auto kPowersOfTen = [] {
  std::array<Float, 20> powers{1};
  for (std::size_t i = 1; i < powers.size(); ++i) powers[i] = powers[i - 1] * 10;  // exact up to 1e22
  return powers;
}();

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

// Reads the usual numbers, of up to 19 digits without an exponent, several times as fast as std::from_chars.
const char* take_short_number(const char* at, const char* end, double& number) {
  const bool is_negative = *at == '-';
  if (is_negative) ++at;
  std::uint64_t value = 0;
  const char* const whole = at;
  at = take_digits(at, end, value);
  auto num_digits = at - whole;
  std::size_t power = 0;
  if (at != end && *at == '.') {
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

const char* take_csv_number(const char* begin, const char* end, double& number) {
  if (begin == end || (!is_digit(*begin) && *begin != '-' && *begin != '.')) return nullptr;
  if (const char* const after = take_short_number(begin, end, number)) return after;
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
