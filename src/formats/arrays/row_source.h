#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "kindling/base/export.h"
#include "kindling/base/file.h"

namespace kindling {

// The rows of an array that stays where it is stored, as values of the host's byte order, in row-major order.
// Thread-safe.
class KINDLING_API RowSource {
 public:
  virtual ~RowSource();

  // Copies rows by their numbers, which are those of rows of the array, one after another to `out`. Throws
  // Error.
  virtual void read(const std::int64_t* numbers, std::int64_t count, char* out) const = 0;
  // Returns the path of the file, for messages.
  virtual std::string place() const = 0;
  // Returns a source whose rows are equal parts of these rows, `parts` of each; nullptr: it can read whole
  // rows only.
  virtual std::shared_ptr<const RowSource> divided(std::size_t parts) const;
  // Returns how many consecutive rows are decoded together, so that reading one costs as much as reading all.
  virtual std::int64_t rows_per_chunk() const { return 1; }
};

// Reverses the bytes of each value of 2, 4 or 8 bytes.
void swap_byte_order(char* values, std::size_t num_bytes, std::size_t value_bytes);

// Rows that follow one another in a file. They are read, not mapped: the system would end a process that uses
// a mapped page beyond the end of a file that has been shortened.
class KINDLING_API FileRows final : public RowSource {
 public:
  // `begin`: offset of the first row in bytes. `swapped_bytes`: of a value, whose bytes are in the other
  // order than the host's; 0: they are not.
  FileRows(std::shared_ptr<const InputFile> file, std::size_t begin, std::size_t row_bytes,
           std::size_t swapped_bytes = 0);

  // Consecutive rows are read at once. Throws Error if the file has become shorter.
  void read(const std::int64_t* numbers, std::int64_t count, char* out) const override;
  std::string place() const override;
  std::shared_ptr<const RowSource> divided(std::size_t parts) const override;

 private:
  std::shared_ptr<const InputFile> file_;
  std::size_t begin_, row_bytes_, swapped_bytes_;
};

}  // namespace kindling
