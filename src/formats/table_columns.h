#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "formats/category_index.h"
#include "kindling/formats/table.h"

// What the readers of CSV and of JSON lines share.
namespace kindling {

inline constexpr std::size_t kMaxTableColumns = 65'536;
inline constexpr std::size_t kMaxCategories = 10'000'000;

// Sorts the texts of the index bytewise into the column's categories, and replaces its codes, which are
// numbers of the index.
void sort_categories(const CategoryIndex& index, TableColumn& column);

// Returns text in quotes for a message, on one line and shortened.
std::string quoted_text(std::string_view text);

// All throw DataError. `place` is the file.
void refuse_utf16(std::string_view text, const std::string& place, const std::string& remedy);
[[noreturn]] void refuse_not_utf8(const std::string& place);
[[noreturn]] void refuse_number_of_columns(const std::string& place);
[[noreturn]] void refuse_number_of_categories(const std::string& place);
[[noreturn]] void refuse_two_kinds(const std::string& name, const std::string& place);
// For a column that the options declare and the file lacks; `names` are those of the file.
[[noreturn]] void refuse_unknown_column(const std::string& name, const std::vector<std::string>& names,
                                        const std::string& place);

}  // namespace kindling
