#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "formats/arrays/row_writer.h"
#include "kindling/base/export.h"

namespace kindling {

// Writes a NetCDF-4 file with a variable for each column, and one of texts. If the origin is known, columns
// that estimate targets have the name, the dimensions and the attributes of its array, except for those that
// say how its values are packed, and classes have all but the name. The samples are the first dimension. The
// coordinates of the dimensions, and those that the attributes `coordinates`, `grid_mapping` and `bounds`
// name, are copied as they are stored; those along the samples have the values of the rows that append() is
// called with. A column whose rows have another shape has dimensions of its own, and a warning is logged.
//
// Throws DataError for types that NetCDF does not have (float16, complex64); without the library, that names
// the package.
KINDLING_API std::unique_ptr<RowWriter> netcdf_writer(const std::filesystem::path& path,
                                                      std::span<const ColumnToWrite> columns,
                                                      const RowTexts& texts, const RowOrigin& origin,
                                                      std::int64_t num_rows);

}  // namespace kindling
