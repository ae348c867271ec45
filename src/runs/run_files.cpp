#include "runs/run_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <nlohmann/json.hpp>

#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/formats/csv.h"
#include "runs/worst_pictures.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxTextBytes = std::size_t{1} << 20;         // of a config, as for the program
constexpr std::size_t kMaxLogBytes = std::size_t{1} << 22;          // from the end of a longer log
constexpr std::size_t kMaxReportTableBytes = std::size_t{1} << 25;  // of the validation report
constexpr std::size_t kMostMatrixRows = 1000, kMostBins = 1000, kMostResiduals = 200'000, kMostWorst = 100,
                      kMostRolloutSteps = 10'000;
constexpr std::size_t kMostEvents = 100, kMostCommands = 50, kMostLayers = 500, kMostKeys = 200;
constexpr int kMaxDepth = 6;
const std::vector<std::string> kLayerTitles = {"name", "type", "input", "output", "parameters"};

// A regular file that is open for reading; a FIFO or a device is refused without waiting for it.
class OpenFile {
 public:
  explicit OpenFile(const std::filesystem::path& path)
      : file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {
    struct stat status {};
    if (file_ < 0 || ::fstat(file_, &status) != 0 || !S_ISREG(status.st_mode)) return;
    size_ = static_cast<std::size_t>(status.st_size);
    is_regular_ = true;
  }
  ~OpenFile() {
    if (file_ >= 0) ::close(file_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  bool is_regular() const { return is_regular_; }
  std::size_t size() const { return size_; }
  // Returns fewer bytes if the file ends before or cannot be read.
  std::string read(std::size_t offset, std::size_t size) const {
    std::string bytes(size, '\0');
    std::size_t done = 0;
    while (done < size) {
      const auto count = ::pread(file_, bytes.data() + done, size - done, static_cast<off_t>(offset + done));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) break;
      done += static_cast<std::size_t>(count);
    }
    bytes.resize(done);
    return bytes;
  }

 private:
  int file_;
  std::size_t size_ = 0;
  bool is_regular_ = false;
};

std::string text_or_empty(const fs::path& file) { return small_file(file, kMaxTextBytes).value_or(""); }

// Splits at spaces outside of single quotes, with which the program quotes its words.
std::vector<std::string> shell_words(std::string_view command) {
  std::vector<std::string> words(1);
  bool is_quoted = false;
  for (std::size_t i = 0; i < command.size(); ++i) {
    const char c = command[i];
    if (c == '\'')
      is_quoted = !is_quoted;
    else if (c == '\\' && !is_quoted && i + 1 < command.size())
      words.back() += command[++i];
    else if (c == ' ' && !is_quoted)
      words.emplace_back();
    else
      words.back() += c;
  }
  return words;
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (end > 0) lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

void add_values(const Json& json, const std::string& path, int depth,
                std::vector<std::pair<std::string, std::string>>& values) {
  for (const auto& [key, value] : json.items()) {
    if (values.size() == kMostKeys) return;
    const std::string name = path.empty() ? key : path + "." + key;
    if (value.is_object() && depth < kMaxDepth)
      add_values(value, name, depth + 1, values);
    else if (value.is_string())
      values.emplace_back(name, value.get<std::string>());
    else if (!value.is_null())
      values.emplace_back(name, value.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
}

// Deep nesting, which the program never writes, is dropped while it is parsed.
std::vector<std::pair<std::string, std::string>> values_of(const std::string& text) {
  const auto is_kept = [](int depth, Json::parse_event_t, const Json&) { return depth <= kMaxDepth; };
  const Json json = Json::parse(text, is_kept, /*allow_exceptions=*/false);
  std::vector<std::pair<std::string, std::string>> values;
  if (json.is_object()) add_values(json, "", 0, values);
  return values;
}

std::vector<std::vector<std::string>> layers_of(const std::string& table) {
  std::string_view rest = table;
  std::vector<std::vector<std::string>> layers;
  if (rest.empty() || take_csv_line(rest) != kLayerTitles) return layers;
  while (!rest.empty() && layers.size() < kMostLayers) {
    auto row = take_csv_line(rest);
    if (row.size() == kLayerTitles.size()) layers.push_back(std::move(row));
  }
  return layers;
}

CsvRows csv_rows(const fs::path& file, std::size_t max_rows) {
  const std::string text = small_file(file, kMaxReportTableBytes).value_or("");
  std::string_view rest = text;
  CsvRows rows;
  while (!rest.empty() && rows.size() <= max_rows) {
    auto row = take_csv_line(rest);
    if (rows.empty() || row.size() == rows.front().size()) rows.push_back(std::move(row));
  }
  return rows;
}

std::string end_of_log(const fs::path& file) try {
  const InputFile log(file);
  std::string text(std::min(log.size(), kMaxLogBytes), '\0');
  log.read(log.size() - text.size(), text.data(), text.size());
  return text;
} catch (const Error&) {
  return {};
}

// "2026-03-01 12:00:00.123 warning: text"; nothing for other lines.
std::optional<RunEvent> event_of(std::string_view line) {
  constexpr std::size_t kTimeSize = 23;
  if (line.size() < kTimeSize + 3 || line[kTimeSize] != ' ' || line[4] != '-' || line[10] != ' ')
    return std::nullopt;
  const std::string_view rest = line.substr(kTimeSize + 1);
  const std::size_t colon = rest.find(": ");
  if (colon == std::string_view::npos) return std::nullopt;
  const std::string_view level = rest.substr(0, colon), text = rest.substr(colon + 2);
  const bool is_start = text.starts_with("restart ") || text.starts_with("resume: ");
  if (level != "warning" && level != "error" && !is_start) return std::nullopt;
  return RunEvent{.time = std::string(line.substr(0, kTimeSize)),
                  .level = std::string(is_start ? "start" : level),
                  .text = std::string(text)};
}

}  // namespace

std::optional<std::string> small_file(const fs::path& path, std::size_t max_bytes) {
  const OpenFile file(path);
  if (!file.is_regular() || file.size() > max_bytes) return std::nullopt;
  return file.read(0, file.size());
}

std::string end_of_file(const fs::path& path, std::size_t max_bytes) {
  const OpenFile file(path);
  if (!file.is_regular()) return {};
  const std::size_t size = std::min(file.size(), max_bytes);
  std::string bytes = file.read(file.size() - size, size);
  bytes.erase(bytes.rfind('\n') == std::string::npos ? 0 : bytes.rfind('\n') + 1);
  if (size < file.size()) bytes.erase(0, bytes.find('\n') + 1);
  return bytes;
}

std::vector<std::pair<std::string, std::string>> overrides_of(std::string_view command) {
  std::vector<std::pair<std::string, std::string>> overrides;
  constexpr std::array<std::string_view, 4> kWithValue{"-c", "--config", "--resume", "--weights"};
  std::string key;  // whose value is the next word
  bool is_value = false;
  for (std::string word : shell_words(command)) {
    if (std::exchange(is_value, std::ranges::find(kWithValue, word) != kWithValue.end())) continue;
    if (!key.empty()) {
      overrides.emplace_back(std::exchange(key, {}), word);
      continue;
    }
    const bool is_option = word.starts_with("--");
    if (is_option) word.erase(0, 2);
    const std::size_t sign = word.find('=');
    const std::string name = word.substr(0, sign);
    const bool is_key = name.find('.') != std::string::npos || name == "seed" || name == "name";
    if ((is_option && !is_key) || word.starts_with("-")) continue;
    if (sign != std::string::npos)
      overrides.emplace_back(name, word.substr(sign + 1));
    else if (is_option)
      key = name;
  }
  return overrides;
}

std::string RunFiles::value(std::string_view key) const {
  const auto found = std::ranges::find(summary, key, [](const auto& one) { return one.first; });
  return found == summary.end() ? "" : found->second;
}

std::string RunFiles::name() const {
  fs::path path = fs::absolute(folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return (path.parent_path().filename() / path.filename()).string();
}

RunFiles read_run_files(const fs::path& folder, std::string_view summary) {
  RunFiles files{
      .folder = folder,
      .summary = values_of(summary.empty() ? text_or_empty(folder / "run.json") : std::string(summary)),
      .config = text_or_empty(folder / "config.toml"),
      .commands = lines_of(text_or_empty(folder / "command.txt")),
      .layers = layers_of(text_or_empty(folder / "model.csv"))};
  if (files.commands.size() > kMostCommands)
    files.commands.erase(files.commands.begin(),
                         files.commands.end() - static_cast<std::ptrdiff_t>(kMostCommands));
  if (!files.value("validation_report.samples").empty()) {
    files.confusion = csv_rows(folder / "confusion_matrix.csv", kMostMatrixRows);
    files.class_scores = csv_rows(folder / "class_scores.csv", kMostMatrixRows);
    files.calibration = csv_rows(folder / "calibration.csv", kMostBins);
    files.residuals = csv_rows(folder / "residuals.csv", kMostResiduals);
    files.worst = csv_rows(folder / "worst_predictions.csv", kMostWorst);
    files.rollout = csv_rows(folder / "rollout.csv", kMostRolloutSteps);
    files.worst_pictures = read_worst_pictures(folder / "worst_pictures.npy");
    files.worst_masks = read_worst_masks(folder / "worst_masks.npy");
    files.field_errors = read_field_errors(folder / "field_errors.npy");
  }
  std::deque<RunEvent> latest;
  for (const std::string& line : lines_of(end_of_log(folder / "log.txt"))) {
    auto event = event_of(line);
    if (!event) continue;
    ++files.num_events;
    latest.push_back(std::move(*event));
    if (latest.size() > kMostEvents) latest.pop_front();
  }
  files.events.assign(latest.begin(), latest.end());
  return files;
}

void write_layers(const fs::path& folder, const std::vector<std::vector<std::string>>& layers) {
  std::string table = csv_line(kLayerTitles);
  for (const auto& layer : layers) table += csv_line(layer);
  write_file_atomically(folder / "model.csv", table);
}

}  // namespace kindling
