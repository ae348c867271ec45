#include "cli/sweep/epoch_reader.h"

#include <fstream>
#include <system_error>

#include "loggers/run_metrics.h"

namespace kindling {

const EpochValues& EpochReader::update() {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(file_, error);
  if (error) return values_;
  if (size < read_bytes_) {
    read_bytes_ = 0;
    partial_.clear();
    values_.clear();
  }
  if (size == read_bytes_) return values_;
  std::ifstream stream(file_, std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(read_bytes_));
  for (char c = 0; read_bytes_ < size && stream.get(c); ++read_bytes_) {
    if (c != '\n') {
      partial_ += c;
      continue;
    }
    take(partial_);
    partial_.clear();
  }
  return values_;
}

void EpochReader::take(const std::string& line) {
  if (!line.starts_with("{\"epoch\": ")) return;  // the many lines of steps need not be parsed
  const auto record = record_of_line(line);
  const double* const value = record ? record->find(name_) : nullptr;
  if (value != nullptr) values_[record->epoch] = {.value = *value, .steps = record->global_step};
}

}  // namespace kindling
