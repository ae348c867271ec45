#include "formats/arrays/row_source.h"

#include <algorithm>
#include <utility>

namespace kindling {
namespace {

template <std::size_t kValueBytes>
void swap_values(char* values, std::size_t num_bytes) {
  for (char* value = values; value < values + num_bytes; value += kValueBytes)
    std::reverse(value, value + kValueBytes);
}

}  // namespace

RowSource::~RowSource() = default;

std::shared_ptr<const RowSource> RowSource::divided(std::size_t /*parts*/) const { return nullptr; }

FileRows::FileRows(std::shared_ptr<const InputFile> file, std::size_t begin, std::size_t row_bytes,
                   std::size_t swapped_bytes)
    : file_(std::move(file)), begin_(begin), row_bytes_(row_bytes), swapped_bytes_(swapped_bytes) {}

void FileRows::read(const std::int64_t* numbers, std::int64_t count, char* out) const {
  for (std::int64_t i = 0, end = 0; i < count; i = end) {
    for (end = i + 1; end < count && numbers[end] == numbers[end - 1] + 1;) ++end;
    const std::size_t bytes = static_cast<std::size_t>(end - i) * row_bytes_;
    file_->read(begin_ + static_cast<std::size_t>(numbers[i]) * row_bytes_, out, bytes);
    swap_byte_order(out, bytes, swapped_bytes_);
    out += bytes;
  }
}

void swap_byte_order(char* values, std::size_t num_bytes, std::size_t value_bytes) {
  switch (value_bytes) {
    case 2:
      return swap_values<2>(values, num_bytes);
    case 4:
      return swap_values<4>(values, num_bytes);
    case 8:
      return swap_values<8>(values, num_bytes);
    default:
      return;
  }
}

std::string FileRows::place() const { return file_->path().string(); }

std::shared_ptr<const RowSource> FileRows::divided(std::size_t parts) const {
  return std::make_shared<FileRows>(file_, begin_, row_bytes_ / parts, swapped_bytes_);
}

}  // namespace kindling
