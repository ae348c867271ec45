#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/file_replacement.h"
#include "base/joined.h"
#include "formats/arrays/npy_header.h"
#include "formats/arrays/row_writer.h"
#include "formats/tensor_types.h"
#include "kindling/base/error.h"

namespace kindling {
namespace {

class NpyWriter final : public RowWriter {
 public:
  NpyWriter(const std::filesystem::path& path, const ColumnToWrite& column, std::int64_t num_rows)
      : file_(path), row_bytes_(column.row_bytes()) {
    const std::string type = numpy_type_text(column.type);
    if (type.empty())
      throw DataError({.place = path.string(),
                       .found = "NumPy does not have the type " + std::string(name_of(column.type)),
                       .wanted = "such as float32 or int64"});
    std::vector<std::int64_t> shape = column.row_shape;
    shape.insert(shape.begin(), num_rows);
    file_.append(npy_header(type, shape));
  }

  void append(std::span<const void* const> columns, std::span<const std::int64_t> rows) override {
    file_.append({static_cast<const char*>(columns[0]), rows.size() * row_bytes_});
  }
  void finish() override { file_.finish(); }

 private:
  FileReplacement file_;
  std::size_t row_bytes_;
};

}  // namespace

RowWriter::~RowWriter() = default;

std::size_t ColumnToWrite::row_values() const {
  std::size_t count = 1;
  for (const std::int64_t size : row_shape) count *= static_cast<std::size_t>(size);
  return count;
}

std::size_t ColumnToWrite::row_bytes() const { return row_values() * row_of(type).bytes; }

std::string numpy_type_text(TensorType type) {
  const TensorTypeRow& row = row_of(type);
  return row.numpy.empty() ? "" : (row.bytes == 1 ? "|" : "<") + std::string(row.numpy);
}

std::string npy_header(const std::string& type, std::span<const std::int64_t> sizes) {
  std::string shape = joined(sizes, ", ", [](std::int64_t size) { return std::to_string(size); });
  if (sizes.size() == 1) shape += ",";
  std::string dict = "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  constexpr std::size_t kBefore = 10, kAlignment = 64;
  dict.append((kAlignment - (kBefore + dict.size() + 1) % kAlignment) % kAlignment, ' ');
  dict += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(dict.size() & 0xff);
  header += static_cast<char>(dict.size() >> 8);
  return header + dict;
}

std::unique_ptr<RowWriter> npy_writer(const std::filesystem::path& path, const ColumnToWrite& column,
                                      std::int64_t num_rows) {
  return std::make_unique<NpyWriter>(path, column, num_rows);
}

}  // namespace kindling
