#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>

#include "kindling/base/file.h"
#include "loggers/run_metrics.h"

namespace kindling {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxLineBytes = std::size_t{1} << 26;  // a confusion matrix of 1,000 classes takes less
constexpr double kMaxInteger = 9e15;                         // exact as a double

// Receives the parts of a line from the JSON parser. Every function returns whether the line can still be a
// record: one object of numbers, with a global_step.
class RecordReader {
 public:
  using json = nlohmann::json;

  bool start_object(std::size_t) { return ++depth_ == 1; }
  bool key(const std::string& name) {
    if (first_key_.empty()) first_key_ = name;
    key_ = name;
    return true;
  }
  bool number_integer(json::number_integer_t number) { return take(static_cast<double>(number)); }
  bool number_unsigned(json::number_unsigned_t number) { return take(static_cast<double>(number)); }
  bool number_float(json::number_float_t number, const std::string&) { return take(number); }
  bool null() { return take(std::numeric_limits<double>::quiet_NaN()); }
  bool boolean(bool) { return false; }
  bool string(const std::string&) { return false; }
  bool binary(const json::binary_t&) { return false; }
  bool end_object() { return true; }
  bool start_array(std::size_t) { return false; }
  bool end_array() { return false; }
  bool parse_error(std::size_t, const std::string&, const json::exception&) { return false; }

  // Returns the record once the whole line has been read.
  std::optional<Record> record() {
    if (record_.global_step < 0) return std::nullopt;
    record_.kind = first_key_ == "epoch"                        ? Record::Kind::epoch
                   : record_.find("train_loss_step") != nullptr ? Record::Kind::step
                                                                : Record::Kind::validation;
    return std::move(record_);
  }

 private:
  bool take(double value) {
    if (depth_ != 1) return false;
    const bool is_step = key_ == "global_step", is_epoch = key_ == "epoch";
    if (!is_step && !is_epoch) {
      record_.values.emplace_back(key_, value);
      return true;
    }
    if (!(value >= 0 && value <= kMaxInteger)) return false;
    (is_step ? record_.global_step : record_.epoch) = static_cast<std::int64_t>(value);
    return true;
  }

  int depth_ = 0;
  std::string first_key_, key_;
  Record record_{.global_step = -1};
};

// Collects records from the pieces of a file.
class LineCollector {
 public:
  void add(std::string_view piece) {
    while (!piece.empty()) {
      const std::size_t end = piece.find('\n');
      const std::string_view part = piece.substr(0, end);
      if (line_.size() + part.size() <= kMaxLineBytes)
        line_ += part;
      else
        is_too_long_ = true;
      if (end == std::string_view::npos) return;
      finish_line();
      piece.remove_prefix(end + 1);
    }
  }

  // The last line may be incomplete, because the run is appending it or was killed then.
  RunRecords finish() {
    if (auto record = record_of_line(line_)) take(*record);
    return std::move(file_);
  }

 private:
  void finish_line() {
    const auto record = is_too_long_ ? std::nullopt : record_of_line(line_);
    if (record)
      take(*record);
    else
      ++file_.num_damaged_lines;
    line_.clear();
    is_too_long_ = false;
  }

  void take(const Record& record) {
    if (record.global_step < file_.metrics.global_step())
      file_.metrics = {};  // the first record of another run
    file_.metrics.add(record);
  }

  RunRecords file_;
  std::string line_;
  bool is_too_long_ = false;
};

}  // namespace

// The parser takes a zero, which a power cut may leave, for the end of its input.
std::optional<Record> record_of_line(std::string_view line) {
  RecordReader reader;
  const bool is_read = line.starts_with('{') && line.find('\0') == std::string_view::npos &&
                       nlohmann::json::sax_parse(line, &reader);
  return is_read ? reader.record() : std::nullopt;
}

RunRecords read_metrics_file(const std::filesystem::path& path) {
  const InputFile file(path);
  LineCollector lines;
  std::string block;
  for (std::size_t begin = 0; begin < file.size(); begin += block.size()) {
    block.resize(std::min(kBlockBytes, file.size() - begin));
    file.read(begin, block.data(), block.size());
    lines.add(block);
  }
  return lines.finish();
}

}  // namespace kindling
