#include "cli/sweep/epoch_reader.h"

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>

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
  if (!line.starts_with("{\"epoch\": ")) return;
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains(name_) || !json.contains("epoch")) return;
  const auto &epoch = json["epoch"], &value = json[name_],
             &step = json.contains("global_step") ? json["global_step"] : epoch;
  if (!epoch.is_number_integer() || !step.is_number_integer()) return;
  values_[epoch.get<std::int64_t>()] = {
      .value = value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN(),
      .steps = step.get<std::int64_t>()};
}

}  // namespace kindling
