#include "formats/arrays/row_source.h"

#include <utility>

namespace kindling {

RowSource::~RowSource() = default;

FileRows::FileRows(std::shared_ptr<const InputFile> file, std::size_t begin, std::size_t row_bytes)
    : file_(std::move(file)), begin_(begin), row_bytes_(row_bytes) {}

void FileRows::read(const std::int64_t* numbers, std::int64_t count, char* out) const {
  for (std::int64_t i = 0, end = 0; i < count; i = end) {
    for (end = i + 1; end < count && numbers[end] == numbers[end - 1] + 1;) ++end;
    const std::size_t bytes = static_cast<std::size_t>(end - i) * row_bytes_;
    file_->read(begin_ + static_cast<std::size_t>(numbers[i]) * row_bytes_, out, bytes);
    out += bytes;
  }
}

std::string FileRows::place() const { return file_->path().string(); }

}  // namespace kindling
