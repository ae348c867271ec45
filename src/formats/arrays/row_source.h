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
};

// Rows that follow one another in a file. They are read, not mapped: the system would end a process that uses
// a mapped page beyond the end of a file that has been shortened.
class KINDLING_API FileRows final : public RowSource {
 public:
  // `begin`: offset of the first row in bytes.
  FileRows(std::shared_ptr<const InputFile> file, std::size_t begin, std::size_t row_bytes);

  // Consecutive rows are read at once. Throws Error if the file has become shorter.
  void read(const std::int64_t* numbers, std::int64_t count, char* out) const override;
  std::string place() const override;

 private:
  std::shared_ptr<const InputFile> file_;
  std::size_t begin_, row_bytes_;
};

}  // namespace kindling
