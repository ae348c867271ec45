#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "formats/arrays/row_writer.h"
#include "kindling/base/export.h"

namespace kindling {

// Writes a data set for each column, chunked along the rows, and one of texts. Columns that estimate targets
// have the attributes of the origin's array, except for references and those of netCDF-4 that describe its
// storage; none if it has other shapes of rows. Data sets are in no group, and files of equal rows have equal
// bytes. Holds the lock of the library during each call only.
//
// Throws DataError for types that the library does not have; without the library, that names the package.
KINDLING_API std::unique_ptr<RowWriter> hdf5_writer(const std::filesystem::path& path,
                                                    std::span<const ColumnToWrite> columns,
                                                    const RowTexts& texts, const RowOrigin& origin);

}  // namespace kindling
