#include "formats/tables/arrow_values.h"

#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "kindling/base/error.h"

// By the specification of the Arrow columnar format and its C data interface.
namespace kindling {
namespace {

bool bit_at(const void* bits, std::int64_t i) {
  return (static_cast<const unsigned char*>(bits)[i / 8] >> (i % 8) & 1) != 0;
}

std::int64_t bytes_of_number(char code) {
  switch (code) {
    case 'c':
    case 'C':
      return 1;
    case 's':
    case 'S':
    case 'e':
      return 2;
    case 'i':
    case 'I':
    case 'f':
      return 4;
    default:
      return 8;
  }
}

float half_to_float(std::uint16_t half) {
  const int exponent = half >> 10 & 31, fraction = half & 1023;
  const float size = exponent == 31  ? (fraction != 0 ? NAN : INFINITY)
                     : exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                     : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
  return (half >> 15) != 0 ? -size : size;
}

std::int64_t units_per_second(char unit) {
  return unit == 's' ? 1 : unit == 'm' ? 1'000 : unit == 'u' ? 1'000'000 : 1'000'000'000;
}

ArrowType decimal_type(std::string_view format) {
  ArrowType type{.kind = ArrowKind::decimal, .code = 'd', .bytes = 16};
  const std::size_t first = format.find(','), second = format.find(',', first + 1);
  type.scale = std::atoi(std::string(format.substr(first + 1)).c_str());
  if (second != std::string_view::npos)
    type.bytes = std::atoi(std::string(format.substr(second + 1)).c_str()) / 8;
  return type;
}

ArrowType time_type(std::string_view format) {
  if (format == "tdD") return {.kind = ArrowKind::date, .code = 'i', .bytes = 4, .per_second = 0};
  if (format == "tdm") return {.kind = ArrowKind::date, .code = 'l', .bytes = 8, .per_second = 1'000};
  if (format.starts_with("ts"))
    return {.kind = ArrowKind::date,
            .code = 'l',
            .bytes = 8,
            .per_second = units_per_second(format[2]),
            .has_zone = format.size() > 4};
  const bool is_short = format == "tts" || format == "ttm";
  return {.kind = ArrowKind::number, .code = is_short ? 'i' : 'l', .bytes = is_short ? 4 : 8};
}

}  // namespace

ArrowType arrow_type(const char* format, const std::string& place) {
  const std::string_view text(format);
  constexpr std::string_view kNumbers = "cCsSiIlLefg";
  if (text == "n") return {};
  if (text == "b") return {.kind = ArrowKind::boolean};
  if (text.size() == 1 && kNumbers.find(text[0]) != std::string_view::npos)
    return {.kind = ArrowKind::number, .code = text[0], .bytes = bytes_of_number(text[0])};
  if (text == "u" || text == "U") return {.kind = ArrowKind::text, .code = text[0]};
  if (text == "vu") return {.kind = ArrowKind::text, .is_view = true};
  if (text.starts_with("d:")) return decimal_type(text);
  const bool is_time = text.starts_with("tt") || text.starts_with("tD") || text.starts_with("ts") ||
                       text == "tdD" || text == "tdm";
  if (is_time && text.size() >= 3) return time_type(text);
  throw DataError({.place = place,
                   .found = "its Arrow type is '" + std::string(text) + "'" +
                            (text.starts_with("+") ? ", which has several values per row" : ""),
                   .wanted = "numbers, texts, categories, booleans or times",
                   .remedy = "drop the column, or make one column per value"});
}

bool ArrowValues::is_null(std::int64_t row) const {
  if (type_.kind == ArrowKind::null) return true;
  return array_.n_buffers > 0 && array_.buffers[0] != nullptr && !bit_at(array_.buffers[0], offset_ + row);
}

template <class Value>
Value ArrowValues::value(std::int64_t row, std::size_t buffer) const {
  Value value{};
  std::memcpy(&value,
              static_cast<const char*>(array_.buffers[buffer]) +
                  static_cast<std::size_t>(offset_ + row) * sizeof(Value),
              sizeof(Value));
  return value;
}

std::int64_t ArrowValues::integer(std::int64_t row) const {
  switch (type_.code) {
    case 'c':
      return value<std::int8_t>(row);
    case 'C':
      return value<std::uint8_t>(row);
    case 's':
      return value<std::int16_t>(row);
    case 'S':
      return value<std::uint16_t>(row);
    case 'i':
      return value<std::int32_t>(row);
    case 'I':
      return value<std::uint32_t>(row);
    default:
      return value<std::int64_t>(row);
  }
}

double ArrowValues::number(std::int64_t row) const {
  if (type_.kind == ArrowKind::decimal) {
    // The most significant 64-bit word has the sign; a long double holds 64 bits.
    const auto words = static_cast<std::size_t>(type_.bytes) / 8;
    const char* const bytes =
        static_cast<const char*>(array_.buffers[1]) + static_cast<std::size_t>((offset_ + row) * type_.bytes);
    long double sum = 0;
    if (words == 0) {
      std::int32_t small = 0;
      std::memcpy(&small, bytes, sizeof(small));
      sum = small;
    }
    for (std::size_t i = words; i-- > 0;) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes + i * 8, sizeof(word));
      const bool is_first = i + 1 == words;
      sum = sum * 18446744073709551616.0L + (is_first
                                                 ? static_cast<long double>(static_cast<std::int64_t>(word))
                                                 : static_cast<long double>(word));
    }
    return static_cast<double>(sum / std::pow(10.0L, static_cast<long double>(type_.scale)));
  }
  switch (type_.code) {
    case 'L':
      return static_cast<double>(value<std::uint64_t>(row));
    case 'e':
      return half_to_float(value<std::uint16_t>(row));
    case 'f':
      return value<float>(row);
    case 'g':
      return value<double>(row);
    default:
      return static_cast<double>(integer(row));
  }
}

// Infinite dates of DuckDB have the largest numbers.
bool ArrowValues::has_date(std::int64_t row) const {
  constexpr std::int64_t kFirstDay = -719'162, kLastDay = 2'932'896;  // of the years 1 and 9999
  const std::int64_t raw = integer(row), units = units_per_day();
  return raw >= 0 ? raw / units <= kLastDay : (raw + 1) / units - 1 >= kFirstDay;
}

std::string ArrowValues::date(std::int64_t row) const {
  namespace time = std::chrono;
  const std::int64_t raw = integer(row), units = units_per_day();
  const std::int64_t day = raw >= 0 ? raw / units : (raw + 1) / units - 1;
  const time::year_month_day date{time::sys_days{time::days{day}}};
  std::array<char, 64> text{};
  int size = std::snprintf(text.data(), text.size(), "%04d-%02u-%02u", static_cast<int>(date.year()),
                           static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()));
  if (type_.per_second == 0) return {text.data(), static_cast<std::size_t>(size)};
  const std::int64_t in_day = raw - day * units, second = in_day / type_.per_second;
  size += std::snprintf(text.data() + size, text.size() - static_cast<std::size_t>(size), "T%02d:%02d:%02d",
                        static_cast<int>(second / 3600), static_cast<int>(second / 60 % 60),
                        static_cast<int>(second % 60));
  std::string result(text.data(), static_cast<std::size_t>(size));
  if (const std::int64_t part = in_day % type_.per_second; part != 0) {
    std::string digits = std::to_string(type_.per_second + part).substr(1);
    digits.erase(digits.find_last_not_of('0') + 1);
    result += "." + digits;
  }
  return type_.has_zone ? result + "Z" : result;
}

// Short texts are in the view itself, others in one of the buffers that follow.
std::string ArrowValues::viewed_text(std::int64_t row) const {
  struct View {
    std::int32_t size;
    std::array<char, 4> prefix;
    std::int32_t buffer, offset;
  };
  constexpr std::int32_t kInline = 12;
  const auto view = value<View>(row);
  if (view.size > kInline)
    return {static_cast<const char*>(array_.buffers[2 + view.buffer]) + view.offset,
            static_cast<std::size_t>(view.size)};
  const char* const views = static_cast<const char*>(array_.buffers[1]);
  return {views + static_cast<std::size_t>(offset_ + row) * sizeof(View) + sizeof(view.size),
          static_cast<std::size_t>(view.size)};
}

std::string ArrowValues::text(std::int64_t row) const {
  if (type_.kind == ArrowKind::boolean) return bit_at(array_.buffers[1], offset_ + row) ? "true" : "false";
  if (type_.kind == ArrowKind::date) return date(row);
  if (type_.is_view) return viewed_text(row);
  const bool is_large = type_.code == 'U';
  const std::int64_t begin = is_large ? value<std::int64_t>(row) : value<std::int32_t>(row),
                     end = is_large ? value<std::int64_t>(row + 1) : value<std::int32_t>(row + 1);
  const char* const bytes = static_cast<const char*>(array_.buffers[2]);
  return begin == end ? std::string() : std::string(bytes + begin, bytes + end);
}

}  // namespace kindling
