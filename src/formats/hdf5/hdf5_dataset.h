#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "formats/arrays/row_source.h"
#include "formats/hdf5/hdf5_library.h"
#include "formats/hdf5/hdf5_types.h"

namespace kindling {

// A data set that is open for reading.
struct Hdf5Dataset {
  std::shared_ptr<const Hdf5File> file;
  std::string name;
  Hdf5Id id;
  Hdf5Type type{};
  std::vector<hsize_t> shape{};  // in the file; the parts of a complex number are one value

  std::string place() const { return file->path.string() + ", array '" + name + "'"; }
  std::size_t value_bytes() const;          // of the type in memory, without its pairs
  std::vector<std::int64_t> sizes() const;  // of the values in memory, with their pairs
};

// Returns what reads the rows. Requires a turn. Throws DataError if a filter of the data set is missing.
std::shared_ptr<const RowSource> hdf5_rows(std::shared_ptr<const Hdf5Dataset> dataset);

}  // namespace kindling
