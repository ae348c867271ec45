#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/formats/table.h"
#include "kindling/formats/table_schema.h"

// Numbers with a unit, such as "12 kg", "78.4%", "$5,377.19" or "CHF 12".
namespace kindling {

// Returns the unit that all texts have; nothing if one of them is not a number with it. A unit before the
// number is a currency: its sign, or three capitals and a blank. `options`: how numbers are
// written; without TableOptions::thousands, a comma separates thousands where no text allows another meaning.
KINDLING_API std::optional<NumberUnit> common_unit(const std::vector<std::string>& texts,
                                                   const TableOptions& options);

// Returns the few texts without the unit that at least nine of ten have; none if there is no such unit.
KINDLING_API std::vector<std::string> texts_without_unit(const std::vector<std::string>& texts,
                                                         const TableOptions& options);

// Returns the number; nothing for a text without it, or with another unit.
std::optional<double> number_with_unit(std::string_view text, const NumberUnit& unit,
                                       const TableOptions& options);

// "kg", "$"
KINDLING_API std::string unit_text(const NumberUnit& unit);

}  // namespace kindling
