#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace kindling {

// Returns the label of one sample in words: the class of a number, the classes of a row of 0 and 1, and the
// fractions of the classes of a mask's pixels. Returns an empty text for other labels, such as numbers to
// predict, and without names for labels that are not a number.
std::string label_text(const at::Tensor& label, const std::vector<std::string>& classes);

}  // namespace kindling
