#include "kindling/formats/npz.h"

#include <deque>
#include <set>
#include <string>

#include "base/joined.h"
#include "formats/zip_writer.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"

namespace kindling {
namespace {

[[noreturn]] void refuse_array(const TensorToWrite& tensor, const std::string& found,
                               const std::string& wanted) {
  throw CheckpointError({.place = "write_npz, '" + tensor.name + "'", .found = found, .wanted = wanted});
}

// Returns NumPy's name of a type, such as "<f4"; empty: it has none.
std::string_view numpy_type(TensorType type) {
  switch (type) {
    case TensorType::boolean:
      return "|b1";
    case TensorType::uint8:
      return "|u1";
    case TensorType::int8:
      return "|i1";
    case TensorType::int16:
      return "<i2";
    case TensorType::uint16:
      return "<u2";
    case TensorType::int32:
      return "<i4";
    case TensorType::uint32:
      return "<u4";
    case TensorType::int64:
      return "<i8";
    case TensorType::uint64:
      return "<u8";
    case TensorType::float16:
      return "<f2";
    case TensorType::float32:
      return "<f4";
    case TensorType::float64:
      return "<f8";
    case TensorType::complex64:
      return "<c8";
    default:
      return "";
  }
}

void check_array(const TensorToWrite& tensor) {
  if (tensor.name.empty() || tensor.name.find('/') != std::string::npos)
    refuse_array(tensor, "the name is empty or contains '/'", "a name that can be a file name");
  if (numpy_type(tensor.type).empty())
    refuse_array(tensor, "NumPy does not have the type " + std::string(name_of(tensor.type)),
                 "such as float32 or int64");
  std::size_t size = size_of(tensor.type);
  for (const std::int64_t dimension : tensor.shape) size *= static_cast<std::size_t>(dimension);
  if (size != tensor.size_bytes)
    refuse_array(tensor, std::to_string(tensor.size_bytes) + " bytes",
                 std::to_string(size) + " for the shape " + shape_text(tensor.shape));
}

// The .npy format: a signature, the length of a Python dict, the dict; values begin at a multiple of 64.
std::string npy_header(const TensorToWrite& tensor) {
  std::string shape = joined(tensor.shape, ", ", [](std::int64_t size) { return std::to_string(size); });
  if (tensor.shape.size() == 1) shape += ",";
  std::string dict = "{'descr': '" + std::string(numpy_type(tensor.type)) +
                     "', 'fortran_order': False, 'shape': (" + shape + "), }";
  constexpr std::size_t kBefore = 10, kAlignment = 64;
  dict.append((kAlignment - (kBefore + dict.size() + 1) % kAlignment) % kAlignment, ' ');
  dict += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(dict.size() & 0xff);
  header += static_cast<char>(dict.size() >> 8);
  return header + dict;
}

}  // namespace

void write_npz(const std::filesystem::path& path, std::span<const TensorToWrite> tensors) {
  ZipWriter archive;
  std::deque<std::string> arrays;  // borrowed by the archive
  std::set<std::string_view> names;
  for (const TensorToWrite& tensor : tensors) {
    check_array(tensor);
    if (!names.insert(tensor.name).second) refuse_array(tensor, "two arrays have this name", "one array");
    std::string& bytes = arrays.emplace_back(npy_header(tensor));
    if (tensor.size_bytes > 0) bytes.append(static_cast<const char*>(tensor.data), tensor.size_bytes);
    archive.add(tensor.name + ".npy", bytes);
  }
  write_file_atomically(path, archive.finish());
}

}  // namespace kindling
