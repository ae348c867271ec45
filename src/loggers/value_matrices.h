#pragma once

#include <cstddef>
#include <string>
#include <tuple>
#include <vector>

#include "kindling/loggers/record.h"

namespace kindling {

// Values named NAME[row][column], such as those of a confusion matrix.
struct ValueMatrix {
  std::string name;
  std::vector<std::vector<double>> cells;  // square or not; 0 for values that the record lacks
};

// Returns the matrices in a record, in its order.
std::vector<ValueMatrix> matrices_of(const Record& record);

// Returns row, column and value of the largest entries off the diagonal, the largest first.
std::vector<std::tuple<std::size_t, std::size_t, double>> largest_off_diagonal(const ValueMatrix& matrix,
                                                                               std::size_t count);

}  // namespace kindling
