#include "cli/sweep/sweep_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "config/config_tree.h"
#include "config/findings.h"
#include "config/toml_text.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/config/document.h"
#include "kindling/config/reader.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

// [sweep]
struct SweepOptions {
  std::vector<std::string> config{};
  std::string name{};
  std::string dir = "sweeps";
  std::string method = "grid";
  std::int64_t num_runs = 0;
  std::int64_t seed = 0;
  std::int64_t jobs = 1;
  std::string monitor{};
  std::string mode{};
  bool median_stopping = false;
  std::int64_t median_min_epochs = 1;
  std::int64_t median_min_runs = 3;

  static constexpr auto fields = kindling::fields(
      field("config", &SweepOptions::config, {.doc = "config files, relative to the sweep file"}),
      field("name", &SweepOptions::name, {.doc = "name of the sweep's directory; default: that of the file"}),
      field("dir", &SweepOptions::dir, {.doc = "directory of all sweeps, relative to the current directory"}),
      field("method", &SweepOptions::method, {.doc = "how the runs are chosen", .choices = "grid|random"}),
      field("num_runs", &SweepOptions::num_runs, {.doc = "runs of a random search", .min = 0}),
      field("seed", &SweepOptions::seed, {.doc = "seed of a random search", .min = 0}),
      field("jobs", &SweepOptions::jobs, {.doc = "runs at the same time", .min = 1, .max = 1024}),
      field("monitor", &SweepOptions::monitor,
            {.doc = "value that ranks the runs; default: the model's", .example = "\"val_loss\""}),
      field("mode", &SweepOptions::mode,
            {.doc = "with monitor: whether lower or higher is better", .choices = "min|max"}),
      field("median_stopping", &SweepOptions::median_stopping,
            {.doc = "stop runs that are worse than the median of the others at the same epoch"}),
      field("median_min_epochs", &SweepOptions::median_min_epochs,
            {.doc = "epochs before a run can be stopped", .min = 1}),
      field("median_min_runs", &SweepOptions::median_min_runs,
            {.doc = "other runs with a value at the epoch", .min = 1}));
};

// Splits at commas outside of brackets and quotes.
std::vector<std::string> split_values(std::string_view text) {
  std::vector<std::string> values(1);
  int depth = 0;
  char quote = 0;
  for (const char c : text) {
    if (quote != 0)
      quote = c == quote ? '\0' : quote;
    else if (c == '"' || c == '\'')
      quote = c;
    else if (c == '[' || c == '{')
      ++depth;
    else if (c == ']' || c == '}')
      --depth;
    if (c == ',' && depth <= 0 && quote == 0)
      values.emplace_back();
    else
      values.back() += c;
  }
  return values;
}

bool is_integer(std::string_view text, std::int64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return !text.empty() && error == std::errc() && end == text.data() + text.size();
}

// Adds the numbers of "0..4". Returns false for other texts.
bool add_counts(const std::string& text, const std::string& place, std::vector<std::string>& values) {
  const std::size_t dots = text.find("..");
  std::int64_t first = 0, last = 0;
  if (dots == std::string::npos || !is_integer(std::string_view(text).substr(0, dots), first) ||
      !is_integer(std::string_view(text).substr(dots + 2), last))
    return false;
  // Unsigned differences cannot overflow.
  if (last < first || static_cast<std::uint64_t>(last) - static_cast<std::uint64_t>(first) >=
                          static_cast<std::uint64_t>(kMaxSweepRuns))
    throw ConfigError({.place = place,
                       .found = "'" + text + "'",
                       .wanted = "FIRST..LAST with FIRST <= LAST and at most " +
                                 std::to_string(kMaxSweepRuns) + " numbers"});
  for (std::int64_t number = first;; ++number) {
    values.push_back(std::to_string(number));
    if (number == last) return true;
  }
}

// Reads [parameters] and collects its errors.
class ParametersReader {
 public:
  explicit ParametersReader(const ConfigSource& source) : source_(source) {}

  std::vector<SweepParameter> read(const ConfigNode& node) {
    const auto* table = std::get_if<ConfigTable>(&node.value);
    if (table == nullptr)
      report(node, "'parameters' is not a table");
    else
      read_table(*table, "");
    if (!findings_.empty()) config::throw_findings(std::move(findings_), {&source_});
    return std::move(parameters_);
  }

 private:
  void report(const ConfigNode& node, std::string text) {
    findings_.push_back(
        {.place = node.place.source == nullptr ? node.key_place : node.place, .text = std::move(text)});
  }

  static bool is_range(const ConfigTable& table) {
    return table.contains("min") && table.contains("max") && number_in(table, "min") &&
           number_in(table, "max");
  }

  static std::optional<double> number_in(const ConfigTable& table, const char* key) {
    const auto found = table.find(key);
    if (found == table.end()) return std::nullopt;
    if (const auto* whole = std::get_if<std::int64_t>(&found->second->value))
      return static_cast<double>(*whole);
    if (const auto* number = std::get_if<double>(&found->second->value)) return *number;
    return std::nullopt;
  }

  void read_table(const ConfigTable& table, const std::string& prefix) {
    for (const auto& [key, node] : table) {
      const std::string path = prefix + key;
      const auto* below = std::get_if<ConfigTable>(&node->value);
      if (below == nullptr)
        read_values(path, *node);
      else if (is_range(*below))
        read_range(path, *below);
      else
        read_table(*below, path + ".");
    }
  }

  void read_values(const std::string& key, const ConfigNode& node) {
    SweepParameter parameter{.key = key};
    if (const auto* list = std::get_if<ConfigArray>(&node.value)) {
      for (const ConfigNode& item : *list)
        if (const auto text = text_of(item))
          parameter.values.push_back(*text);
        else
          report(item, "'" + key + "': expected a number, a string, true, false or an array");
      if (list->empty()) report(node, "'" + key + "': the list is empty");
    } else if (const auto* text = std::get_if<std::string>(&node.value);
               text == nullptr || !add_counts(*text, source_.name + ", " + key, parameter.values)) {
      report(node, "'" + key + "': expected a list, \"0..4\" or a table with min and max");
    }
    parameters_.push_back(std::move(parameter));
  }

  void read_range(const std::string& key, const ConfigTable& table) {
    SweepRange range{.min = *number_in(table, "min"), .max = *number_in(table, "max")};
    const auto is_whole = [&](const char* name) {
      return std::holds_alternative<std::int64_t>(table.find(name)->second->value);
    };
    range.is_integer = is_whole("min") && is_whole("max");
    for (const auto& [name, node] : table) {
      if (name == "min" || name == "max") continue;
      if (const auto* log = std::get_if<bool>(&node->value); log != nullptr && name == "log")
        range.is_log = *log;
      else if (const auto* num = std::get_if<std::int64_t>(&node->value);
               num != nullptr && name == "num" && *num > 0)
        range.num = *num;
      else
        report(*node, "'" + key + "." + name + "': expected min, max, log = true or num = 5");
    }
    parameters_.push_back({.key = key, .values = {}, .range = range});
  }

  // As the value of an override; nothing for a table or a date.
  static std::optional<std::string> text_of(const ConfigNode& node) {
    const auto text = [](const auto& value) -> std::optional<std::string> {
      using Value = std::remove_cvref_t<decltype(value)>;
      if constexpr (std::is_same_v<Value, ConfigArray>) {
        std::string list;
        for (const ConfigNode& item : value) {
          const auto one = text_of(item);
          if (!one) return std::nullopt;
          list += (list.empty() ? "" : ", ") + *one;
        }
        return "[" + list + "]";
      } else if constexpr (std::is_same_v<Value, ConfigTable> || std::is_same_v<Value, ConfigDate>) {
        return std::nullopt;
      } else if constexpr (std::is_same_v<Value, std::string>) {
        return config::toml_text(std::string_view(value));
      } else {
        return config::toml_text(value);
      }
    };
    return std::visit(text, node.value);
  }

  const ConfigSource& source_;
  std::vector<SweepParameter> parameters_;
  std::vector<config::Finding> findings_;
};

SweepOptions read_options(const std::string& text, const fs::path& file) {
  const auto document = ConfigDocument::parse(text, file.string(), fs::absolute(file).parent_path());
  SweepOptions options;
  ConfigReader reader(document);
  reader.read("sweep", OptionSet::of(options));
  if (!reader.has("sweep.config"))
    reader.error("sweep", "'sweep.config' is missing: config = [\"digits.toml\"]");
  if (!reader.has("parameters"))
    reader.error("parameters", "[parameters] is missing: optimizer.lr = [1e-4, 3e-4]");
  if (!options.monitor.empty() && options.mode.empty())
    reader.error("sweep.monitor", "'sweep.mode' is missing: min or max");
  if (!options.mode.empty() && options.monitor.empty())
    reader.error("sweep.mode", "'sweep.monitor' is missing");
  reader.skip("parameters");
  reader.finish();
  return options;
}

}  // namespace

std::vector<SweepConfigFile> read_configs(const std::vector<fs::path>& files) {
  std::vector<SweepConfigFile> configs;
  for (const fs::path& file : files) {
    ConfigDocument::load(file);  // reports a file that is missing or is not TOML, as a fit does
    const fs::path path = fs::absolute(file).lexically_normal();
    configs.push_back({.path = path, .text = read_file(path, ConfigDocument::kMaxBytes)});
  }
  return configs;
}

SweepParameter parse_sweep_word(const std::string& word) {
  const std::size_t sign = word.find('=');
  if (sign == std::string::npos || sign == 0 || sign + 1 == word.size())
    throw ConfigError({.place = "--sweep",
                       .found = "'" + word + "'",
                       .wanted = "KEY=VALUE,VALUE,... or KEY=FIRST..LAST",
                       .remedy = "for example --sweep optimizer.lr=1e-4,3e-4"});
  SweepParameter parameter{.key = word.substr(0, sign)};
  for (std::string& value : split_values(std::string_view(word).substr(sign + 1))) {
    if (value.empty())
      throw ConfigError({.place = "--sweep " + parameter.key,
                         .found = "an empty value",
                         .wanted = "values separated by commas"});
    if (!add_counts(value, "--sweep " + parameter.key, parameter.values))
      parameter.values.push_back(std::move(value));
  }
  return parameter;
}

SweepFile load_sweep_file(const fs::path& file) {
  const std::string text = read_file(file, ConfigDocument::kMaxBytes);
  const SweepOptions options = read_options(text, file);
  const fs::path folder = fs::absolute(file).parent_path();
  std::vector<fs::path> configs;
  for (const std::string& config : options.config) configs.push_back(folder / config);
  const ConfigSource source{file.string(), folder, text};
  const ConfigTable root = config::parse_toml(source);
  return {.definition = {.name = options.name.empty() ? file.stem().string() : options.name,
                         .configs = read_configs(configs),
                         .overrides = {},
                         .method = options.method,
                         .num_runs = options.num_runs,
                         .seed = options.seed,
                         .monitor = options.monitor,
                         .mode = options.mode,
                         .median = {.is_on = options.median_stopping,
                                    .min_epochs = options.median_min_epochs,
                                    .min_runs = options.median_min_runs},
                         .parameters = ParametersReader(source).read(*root.at("parameters"))},
          .dir = options.dir,
          .jobs = options.jobs};
}

}  // namespace kindling
