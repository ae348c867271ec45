#pragma once

#include <string>
#include <utility>
#include <vector>

namespace kindling {

// A list of numbers, or one of the words in FieldNotes::choices: [1.0, 5.0] or "balanced".
struct NumbersOrWord {
  NumbersOrWord() = default;
  NumbersOrWord(std::vector<double> list) : numbers(std::move(list)) {}
  NumbersOrWord(std::string text) : word(std::move(text)) {}

  std::vector<double> numbers{};
  std::string word{};  // not empty: given in place of numbers

  bool empty() const noexcept { return numbers.empty() && word.empty(); }
  friend bool operator==(const NumbersOrWord&, const NumbersOrWord&) = default;
};

}  // namespace kindling
