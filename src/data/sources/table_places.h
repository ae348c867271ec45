#pragma once

#include <cstddef>
#include <string>

#include "kindling/formats/table.h"

// How messages name columns and rows of a table. `place` is the file.
namespace kindling {

std::string column_place(const std::string& place, const std::string& column);

// `number`: of the row in the file.
std::string number_place(std::size_t number, const std::string& column, const std::string& place);

// `row`: of the table, counted from 0.
std::string row_place(const Table& table, std::size_t row, const std::string& column,
                      const std::string& place);

// Throws DataError for a finite value that float32, the dtype of inputs and targets, cannot represent.
void require_float32(double value, const Table& table, std::size_t row, const std::string& column,
                     const std::string& place);

}  // namespace kindling
