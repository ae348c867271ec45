#pragma once

#include <optional>
#include <string_view>

namespace kindling {

// The characters inside of numbers, which are the same in every locale.
struct NumberMarks {
  char decimal = '.';
  char thousands = 0;  // between groups of three digits; 0: none
};

// Reads the longest number at the beginning of begin…end, correctly rounded. Returns the byte after it;
// nullptr if there is none or it is not finite. With other marks than the default, it is also nullptr for
// some numbers that are seldom written, such as those with an exponent.
const char* take_csv_number(const char* begin, const char* end, double& number, NumberMarks marks = {});

// Returns the number that is all of `text`, which may begin with '+'.
std::optional<double> csv_number(std::string_view text);

}  // namespace kindling
