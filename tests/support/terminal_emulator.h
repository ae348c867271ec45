#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kindling {

// Shows what a program prints as a terminal does: rows of characters of one column, the line end and carriage
// return, lines that wrap, and the escape sequences that erase (J, K) or switch wrapping (?7l, ?7h). Ignores
// other sequences, such as colors. Has rows without end instead of scrolling.
class TerminalEmulator {
 public:
  // With `rewraps`, a change of the width wraps and joins lines, as most terminals do; without it, rows lose
  // what no longer fits, as in xterm.
  TerminalEmulator(std::size_t columns, bool rewraps) : columns_(columns), rewraps_(rewraps) {}

  void print(std::string_view bytes) {
    pending_.append(bytes);
    std::size_t at = 0;
    while (at < pending_.size()) {
      const std::size_t size = size_of_next(at);
      if (size == 0) break;  // the rest has not been printed yet
      take(pending_.substr(at, size));
      at += size;
    }
    pending_.erase(0, at);
  }

  void resize(std::size_t columns) {
    columns_ = columns;
    if (rewraps_)
      wrap_again();
    else
      cut_rows();
  }

  // Without spaces at their ends.
  std::vector<std::string> rows() const {
    std::vector<std::string> texts;
    for (const Row& row : rows_) {
      std::string text;
      for (const std::string& cell : row.cells) text += cell;
      texts.push_back(text.erase(text.find_last_not_of(' ') + 1));
    }
    return texts;
  }
  bool wraps() const { return wraps_; }

 private:
  struct Row {
    std::vector<std::string> cells{};
    bool continues = false;  // in the next row
  };

  // Returns 0 for an incomplete character or sequence.
  std::size_t size_of_next(std::size_t at) const {
    const auto first = static_cast<unsigned char>(pending_[at]);
    if (first != 0x1b) {
      const std::size_t size = first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
      return at + size <= pending_.size() ? size : 0;
    }
    const std::size_t end = pending_.find_first_of("ABCDHJKfhlmnr", at + 1);
    return end == std::string::npos ? 0 : end + 1 - at;
  }

  void take(const std::string& piece) {
    if (piece == "\r")
      column_ = 0;
    else if (piece == "\n")
      move_down(/*continues=*/false);
    else if (piece == "\x1b[K" || piece == "\x1b[J")
      erase(/*below=*/piece.back() == 'J');
    else if (piece == "\x1b[?7l" || piece == "\x1b[?7h")
      wraps_ = piece.back() == 'h';
    else if (piece.front() != '\x1b')
      put(piece);
  }

  void put(const std::string& character) {
    if (column_ >= columns_ && wraps_) {
      move_down(/*continues=*/true);
      column_ = 0;
    }
    column_ = std::min(column_, columns_ - 1);
    std::vector<std::string>& cells = rows_[row_].cells;
    if (cells.size() <= column_) cells.resize(column_ + 1, " ");
    cells[column_++] = character;
  }

  void move_down(bool continues) {
    rows_[row_].continues = continues;
    if (++row_ == rows_.size()) rows_.emplace_back();
  }

  void erase(bool below) {
    std::vector<std::string>& cells = rows_[row_].cells;
    cells.resize(std::min(cells.size(), column_));
    rows_[row_].continues = false;
    if (below) rows_.resize(row_ + 1);
  }

  void cut_rows() {
    for (Row& row : rows_) row.cells.resize(std::min(row.cells.size(), columns_));
    column_ = std::min(column_, columns_ - 1);
  }

  // The cursor stays at its character.
  void wrap_again() {
    std::vector<Row> before = std::exchange(rows_, {});
    const std::size_t old_row = row_, old_column = column_;
    for (std::size_t i = 0; i < before.size(); ++i) {
      std::vector<std::string> line;
      std::size_t cursor = std::string::npos;
      for (bool is_open = true; is_open; i += is_open ? 1 : 0) {
        if (i == old_row) cursor = line.size() + old_column;
        line.insert(line.end(), before[i].cells.begin(), before[i].cells.end());
        is_open = before[i].continues && i + 1 < before.size();
      }
      const std::size_t first = rows_.size();
      add_line(line);
      if (cursor == std::string::npos) continue;
      row_ = first + std::min(cursor / columns_, rows_.size() - 1 - first);
      column_ = cursor - (row_ - first) * columns_;
    }
  }

  void add_line(const std::vector<std::string>& line) {
    std::size_t at = 0;
    do {
      const std::size_t end = std::min(at + columns_, line.size());
      rows_.push_back({.cells = {line.begin() + static_cast<std::ptrdiff_t>(at),
                                 line.begin() + static_cast<std::ptrdiff_t>(end)},
                       .continues = end < line.size()});
      at = end;
    } while (at < line.size());
  }

  std::size_t columns_;
  bool rewraps_, wraps_ = true;
  std::vector<Row> rows_ = std::vector<Row>(1);
  std::size_t row_ = 0, column_ = 0;
  std::string pending_;  // an incomplete character or sequence
};

}  // namespace kindling
