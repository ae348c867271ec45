#include "config/option_checks.h"

#include <algorithm>
#include <string_view>

#include "base/joined.h"
#include "config/toml_text.h"
#include "kindling/base/number_text.h"

namespace kindling::config {

std::vector<std::string> choices_of(const FieldNotes& notes) {
  std::vector<std::string> choices;
  for (std::string_view left = notes.choices; !left.empty();) {
    const std::size_t end = std::min(left.find('|'), left.size());
    choices.emplace_back(left.substr(0, end));
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return choices;
}

std::string choices_text(const FieldNotes& notes, std::string_view gap) {
  return joined(choices_of(notes), gap, [](const std::string& choice) { return toml_text(choice); });
}

std::string range_text(const FieldNotes& notes) {
  std::string text;
  if (std::isfinite(notes.min)) text = (notes.min_excluded ? "> " : ">= ") + number_text(notes.min);
  if (!std::isfinite(notes.max)) return text;
  return text + (text.empty() ? "" : " and ") + (notes.max_excluded ? "< " : "<= ") + number_text(notes.max);
}

bool in_range(double value, const FieldNotes& notes) {
  const bool above = notes.min_excluded ? value > notes.min : value >= notes.min;
  const bool below = notes.max_excluded ? value < notes.max : value <= notes.max;
  return above && below;
}

bool is_choice(const std::string& value, const FieldNotes& notes) {
  const std::vector<std::string> choices = choices_of(notes);
  return choices.empty() || std::find(choices.begin(), choices.end(), value) != choices.end();
}

std::string wanted_numbers_or_word(const FieldNotes& notes) {
  const std::string range = range_text(notes), words = choices_text(notes, ", ");
  return "an array of numbers" + (range.empty() ? "" : " " + range) + (words.empty() ? "" : ", or " + words);
}

std::string wanted_string(const FieldNotes& notes) {
  const std::string choices = choices_text(notes, ", ");
  return choices.empty() ? "a string" : "one of " + choices;
}

}  // namespace kindling::config
