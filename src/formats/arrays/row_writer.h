#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/formats/safetensors.h"

// Files of arrays that are written in parts, so that their size is not bounded by memory.
namespace kindling {

// An array [rows, …] of such a file.
struct ColumnToWrite {
  std::string name{};  // without /
  TensorType type = TensorType::float32;
  std::vector<std::int64_t> row_shape{};
  // True: its values are in the unit of the targets, so that it gets their attributes.
  bool estimates_targets = false;
  // True: its values are classes, as integer targets are.
  bool is_class = false;

  std::size_t row_values() const;
  std::size_t row_bytes() const;
};

// Where the rows come from, so that a file of the same format keeps names, attributes and coordinates.
struct RowOrigin {
  std::vector<std::filesystem::path> files{};  // whose samples are joined; empty: not known
  std::string array{};                         // the targets in them
  // The samples of other files, of which no targets are known; empty: those of `files`.
  std::vector<std::filesystem::path> sample_files{};
  std::string sample_array{};
  std::string sample_dim{};      // of NetCDF, as stored_netcdf() takes it; empty: the first one
  std::size_t num_row_dims = 1;  // 2 for an array [series, time, …] whose states are the samples
  // False: samples are not rows of the array, so they have no coordinates of their own.
  bool has_rows = true;
  bool has_coordinates = true;  // false: nothing is known of the samples' coordinates
};

// Texts of all rows, borrowed for the lifetime of a writer; an empty name: none. The name has no /.
struct RowTexts {
  std::string name{};
  std::span<const std::string> texts{};
};

// Writes a file in parts. The file gets its name when it is complete and durable; without finish(), a file of
// that name is unchanged and no other file remains. All functions throw Error. Not thread-safe.
class KINDLING_API RowWriter {
 public:
  virtual ~RowWriter();
  // Appends rows to every column, from values in row-major order. `rows`: their numbers in the origin's
  // array.
  virtual void append(std::span<const void* const> columns, std::span<const std::int64_t> rows) = 0;
  virtual void finish() = 0;
};

// Writes one array; the header, which has the number of rows, comes first. Throws DataError for types that
// NumPy does not have.
KINDLING_API std::unique_ptr<RowWriter> npy_writer(const std::filesystem::path& path,
                                                   const ColumnToWrite& column, std::int64_t num_rows);

}  // namespace kindling
