#include "formats/tables/table_units.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "formats/tables/table_values.h"

namespace kindling {
namespace {

constexpr std::string_view kDigits = "0123456789";
bool is_digit_of_number(char c) { return kDigits.find(c) != std::string_view::npos; }

// A text in its parts, without spaces at their ends.
struct TextWithUnit {
  std::string number{}, prefix{}, suffix{};  // the number has its sign
};

std::string_view trimmed_blanks(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// Returns where the number that begins at `begin` ends.
std::size_t end_of_number(std::string_view text, std::size_t begin) {
  std::size_t end = std::min(text.find_first_not_of("0123456789.,'_", begin), text.size());
  while (end > begin && kDigits.find(text[end - 1]) == std::string_view::npos) --end;
  std::size_t exponent = end;
  if (exponent < text.size() && (text[exponent] == 'e' || text[exponent] == 'E')) {
    ++exponent;
    if (exponent < text.size() && (text[exponent] == '+' || text[exponent] == '-')) ++exponent;
    const std::size_t after = std::min(text.find_first_not_of(kDigits, exponent), text.size());
    if (after > exponent) end = after;
  }
  return end;
}

bool is_capital(char c) { return c >= 'A' && c <= 'Z'; }

std::optional<TextWithUnit> split_unit(std::string_view text) {
  text = trimmed_blanks(text);
  std::size_t begin = text.find_first_of(kDigits);
  if (begin == std::string_view::npos) return std::nullopt;
  if (begin > 0 && (text[begin - 1] == '.' || text[begin - 1] == ',')) --begin;
  const std::size_t end = end_of_number(text, begin);
  std::string_view before = trimmed_blanks(text.substr(0, begin));
  std::string sign;
  const auto is_sign = [](char c) { return c == '-' || c == '+'; };
  if (!before.empty() && is_sign(before.front())) {  // -$5
    sign = before.front();
    before.remove_prefix(1);
  } else if (!before.empty() && is_sign(before.back())) {  // $-5
    sign = before.back();
    before.remove_suffix(1);
  }
  // SKU001 and USD.500 are names.
  const bool has_blank = text.substr(0, begin).find_first_of(" \t") != std::string_view::npos;
  if (!before.empty() && is_capital(before.front()) && !has_blank) return std::nullopt;
  return TextWithUnit{.number = (sign == "-" ? sign : "") + std::string(text.substr(begin, end - begin)),
                      .prefix = std::string(trimmed_blanks(before)),
                      .suffix = std::string(trimmed_blanks(text.substr(end)))};
}

// Other texts before a number change its meaning, such as "<5", "~5" and "(5)".
bool is_currency(std::string_view text) {
  constexpr std::array<std::string_view, 18> kSigns{"$", "€", "£", "¥", "₹", "₩", "₽", "₺",  "₴",
                                                    "₪", "₫", "฿", "₱", "₦", "₡", "US$", "R$", "A$"};
  return (text.size() == 3 && std::ranges::all_of(text, is_capital)) ||
         std::ranges::find(kSigns, text) != kSigns.end();
}

// True for "kg", "%" and "m2"; not for the rest of a larger number or of another text, as in "1 000 kg",
// "3 1/2", "5 to 10", "12:30" and "9h30".
bool is_unit_after_number(std::string_view text) {
  if (std::string_view("-:/.,'_+*#()<>=~").find(text.front()) != std::string_view::npos) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!is_digit_of_number(text[i])) continue;
    const bool follows_letter = i > 0 && (is_capital(text[i - 1]) || text[i - 1] == '^' ||
                                          (text[i - 1] >= 'a' && text[i - 1] <= 'z'));
    if (!follows_letter || (i + 1 < text.size() && is_digit_of_number(text[i + 1]))) return false;
  }
  return true;
}

bool is_unit(const NumberUnit& unit) {
  if (!unit.prefix.empty() && !is_currency(unit.prefix)) return false;
  if (!unit.suffix.empty() && !is_unit_after_number(unit.suffix)) return false;
  return !unit.prefix.empty() || !unit.suffix.empty();
}

// "5,377.19" or "1,234,567", whose commas cannot be decimal ones.
bool has_certain_groups(std::string_view number) {
  const std::size_t comma = number.find(',');
  return comma != std::string_view::npos && number.find_first_of(",.", comma + 1) != std::string_view::npos;
}

TableOptions layout_with(const NumberUnit& unit, const TableOptions& options) {
  TableOptions layout{.thousands = options.thousands, .decimal = options.decimal};
  if (unit.has_groups) layout.thousands = ',';
  return layout;
}

}  // namespace

std::optional<NumberUnit> common_unit(const std::vector<std::string>& texts, const TableOptions& options) {
  std::optional<NumberUnit> unit;
  bool has_groups = false;
  for (const std::string& text : texts) {
    const std::optional<TextWithUnit> parts = split_unit(text);
    if (!parts) return std::nullopt;
    if (!unit) unit = NumberUnit{.prefix = parts->prefix, .suffix = parts->suffix};
    if (unit->prefix != parts->prefix || unit->suffix != parts->suffix) return std::nullopt;
    has_groups = has_groups || has_certain_groups(parts->number);
  }
  if (!unit || !is_unit(*unit)) return std::nullopt;
  unit->has_groups = has_groups && options.thousands == 0 && options.decimal == '.';
  const TableValues values(layout_with(*unit, options), {}, "");
  for (const std::string& text : texts)
    if (!values.number(split_unit(text)->number)) return std::nullopt;
  return unit;
}

std::vector<std::string> texts_without_unit(const std::vector<std::string>& texts,
                                            const TableOptions& options) {
  using Unit = std::pair<std::string, std::string>;
  std::map<std::optional<Unit>, std::vector<std::string>> by_unit;
  for (const std::string& text : texts) {
    const auto parts = split_unit(text);
    by_unit[parts ? std::optional<Unit>({parts->prefix, parts->suffix}) : std::nullopt].push_back(text);
  }
  for (const auto& [unit, with_unit] : by_unit) {
    if (!unit || 10 * with_unit.size() < 9 * texts.size() || !common_unit(with_unit, options)) continue;
    std::vector<std::string> others;
    for (const auto& [other, its_texts] : by_unit)
      if (other != unit) others.insert(others.end(), its_texts.begin(), its_texts.end());
    return others;
  }
  return {};
}

std::optional<double> number_with_unit(std::string_view text, const NumberUnit& unit,
                                       const TableOptions& options) {
  const std::optional<TextWithUnit> parts = split_unit(text);
  if (!parts || parts->prefix != unit.prefix || parts->suffix != unit.suffix) return std::nullopt;
  NumberUnit written = unit;
  if (options.thousands == 0 && options.decimal == '.')
    written.has_groups = unit.has_groups || has_certain_groups(parts->number);
  return TableValues(layout_with(written, options), {}, "").number(parts->number);
}

std::string unit_text(const NumberUnit& unit) {
  return unit.prefix + (unit.prefix.empty() || unit.suffix.empty() ? "" : " ") + unit.suffix;
}

}  // namespace kindling
