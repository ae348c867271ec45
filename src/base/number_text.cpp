#include "kindling/base/number_text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>

namespace kindling {
namespace {

constexpr double kTooLargeForFixed = 1e15;
constexpr double kWholeBelow = 9007199254740992.0;  // 2^53: every smaller whole number is exactly a double

template <class... Format>
std::string chars_of(double value, Format... format) {
  std::array<char, 64> text;
  return std::string(text.data(),
                     std::to_chars(text.data(), text.data() + text.size(), value, format...).ptr);
}

// "1.5e-03" → "1.5e-3", "1e+06" → "1e6".
std::string without_padded_exponent(std::string text) {
  std::size_t digit = text.find('e') + 1;
  if (text[digit] == '+') text.erase(digit, 1);
  if (text[digit] == '-') ++digit;
  while (text[digit] == '0' && digit + 1 < text.size()) text.erase(digit, 1);
  return text;
}

std::string two_digits(std::int64_t number) { return (number < 10 ? "0" : "") + std::to_string(number); }

}  // namespace

std::string number_text(double value) {
  if (std::isnan(value)) return "nan";  // with either sign
  const bool whole = std::trunc(value) == value && std::abs(value) < kWholeBelow;
  return whole ? chars_of(value, std::chars_format::fixed) : chars_of(value);
}

std::string fixed_text(double value, int decimals) {
  if (!std::isfinite(value)) return number_text(value);
  if (std::abs(value) >= kTooLargeForFixed) return short_text(value, decimals);
  return chars_of(value, std::chars_format::fixed, decimals);
}

std::string short_text(double value, int digits) {
  if (!std::isfinite(value)) return number_text(value);
  if (std::abs(value) >= std::pow(10, digits - 1) && std::abs(value) < 1e6) return fixed_text(value, 0);
  const std::string scientific = chars_of(value, std::chars_format::scientific, digits - 1);
  double rounded = 0;  // to drop trailing zeros: 1.00e-03 → 1e-03
  std::from_chars(scientific.data(), scientific.data() + scientific.size(), rounded);
  if (std::abs(rounded) >= 1 && std::abs(rounded) < 1e6) return chars_of(rounded, std::chars_format::fixed);
  const std::string shortest = without_padded_exponent(chars_of(rounded, std::chars_format::scientific));
  if (std::abs(rounded) >= 1e6 || (rounded != 0 && std::abs(rounded) < 1e-9)) return shortest;
  const std::string fixed = chars_of(rounded, std::chars_format::fixed);
  return shortest.size() < fixed.size() ? shortest : fixed;
}

std::string bytes_text(double bytes, int digits) {
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < kUnits.size(); ++unit) bytes /= 1024;
  return (unit == 0 ? fixed_text(bytes, 0) : short_text(bytes, digits)) + " " + kUnits[unit];
}

std::string clock_text(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) return "--:--";
  const std::int64_t whole = std::llround(seconds);
  const std::string tail = two_digits(whole / 60 % 60) + ":" + two_digits(whole % 60);
  return whole < 3600 ? tail : std::to_string(whole / 3600) + ":" + tail;
}

}  // namespace kindling
