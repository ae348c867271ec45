#include "loggers/value_matrices.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace kindling {
namespace {

constexpr std::size_t kMostRows = 2000;

struct CellName {
  std::string_view matrix;
  std::size_t row = 0, column = 0;
};

// Takes "[12]" from the end of `text`.
std::optional<std::size_t> take_index(std::string_view& text) {
  const std::size_t open = text.rfind('[');
  if (open == std::string_view::npos || !text.ends_with(']')) return std::nullopt;
  const char* const end = text.data() + text.size() - 1;
  std::size_t index = 0;
  const auto [stop, error] = std::from_chars(text.data() + open + 1, end, index);
  if (error != std::errc() || stop != end || index >= kMostRows) return std::nullopt;
  text = text.substr(0, open);
  return index;
}

std::optional<CellName> cell_name(std::string_view text) {
  const auto column = take_index(text);
  if (!column) return std::nullopt;
  const auto row = take_index(text);
  if (!row || text.empty()) return std::nullopt;
  return CellName{.matrix = text, .row = *row, .column = *column};
}

}  // namespace

std::vector<ValueMatrix> matrices_of(const Record& record) {
  std::vector<ValueMatrix> matrices;
  for (const auto& [name, value] : record.values) {
    const auto cell = cell_name(name);
    if (!cell) continue;
    auto found = std::ranges::find(matrices, cell->matrix, &ValueMatrix::name);
    if (found == matrices.end()) found = matrices.insert(found, {std::string(cell->matrix), {}});
    auto& cells = found->cells;
    if (cells.size() <= cell->row) cells.resize(cell->row + 1);
    if (cells[cell->row].size() <= cell->column) cells[cell->row].resize(cell->column + 1);
    cells[cell->row][cell->column] = value;
  }
  return matrices;
}

std::vector<std::tuple<std::size_t, std::size_t, double>> largest_off_diagonal(const ValueMatrix& matrix,
                                                                               std::size_t count) {
  std::vector<std::tuple<std::size_t, std::size_t, double>> entries;
  for (std::size_t row = 0; row < matrix.cells.size(); ++row)
    for (std::size_t column = 0; column < matrix.cells[row].size(); ++column)
      if (row != column && matrix.cells[row][column] > 0)
        entries.emplace_back(row, column, matrix.cells[row][column]);
  std::ranges::stable_sort(entries, std::ranges::greater{},
                           [](const auto& entry) { return std::get<2>(entry); });
  entries.resize(std::min(entries.size(), count));
  return entries;
}

}  // namespace kindling
