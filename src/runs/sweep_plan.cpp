#include "runs/sweep_plan.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/mixed_bits.h"
#include "config/toml_text.h"
#include "kindling/base/error.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr int kPlanVersion = 1;

[[noreturn]] void refuse(const std::string& place, const std::string& found, const std::string& expected,
                         const std::string& hint = "") {
  throw ConfigError({.place = place, .found = found, .wanted = expected, .remedy = hint});
}

std::uint64_t hash_of(const std::string& text) {  // FNV-1a
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// Uniform in [0, 1).
double random_fraction(std::int64_t seed, std::int64_t run, const std::string& key) {
  const std::uint64_t of_run =
      mixed_bits(mixed_bits(static_cast<std::uint64_t>(seed)) ^ static_cast<std::uint64_t>(run));
  const std::uint64_t bits = mixed_bits(of_run ^ hash_of(key));
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

// Six significant digits: enough for a search, and independent of the last bits of exp() and log().
std::string rounded_text(double value) {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value, std::chars_format::general, 6);
  double rounded = value;
  if (error == std::errc()) std::from_chars(text, end, rounded);
  return config::toml_text(rounded);
}

std::string value_at(const SweepRange& range, double fraction) {
  double value = range.is_log
                     ? std::exp(std::log(range.min) + fraction * (std::log(range.max) - std::log(range.min)))
                     : range.min + fraction * (range.max - range.min);
  value = std::clamp(value, range.min, range.max);
  return range.is_integer ? config::toml_text(static_cast<std::int64_t>(std::llround(value)))
                          : rounded_text(value);
}

std::string random_value(const SweepParameter& parameter, double fraction) {
  if (!parameter.range) {
    const auto count = static_cast<double>(parameter.values.size());
    return parameter.values[static_cast<std::size_t>(fraction * count)];
  }
  const SweepRange& range = *parameter.range;
  if (!range.is_integer || range.is_log) return value_at(range, fraction);
  const double value = range.min + std::floor(fraction * (range.max - range.min + 1));  // all equally likely
  return config::toml_text(static_cast<std::int64_t>(std::min(value, range.max)));
}

std::vector<std::string> grid_values(const SweepParameter& parameter) {
  if (!parameter.range) return parameter.values;
  const SweepRange& range = *parameter.range;
  const std::string place = "sweep, " + parameter.key;
  if (range.num < 1)
    refuse(place, "a range has no number of points", "num = 5, or a list of values",
           "or method = \"random\"");
  if (range.num > kMaxSweepRuns)
    refuse(place, std::to_string(range.num) + " points", "at most " + std::to_string(kMaxSweepRuns));
  std::vector<std::string> values;
  for (std::int64_t i = 0; i < range.num; ++i)
    values.push_back(
        value_at(range, range.num == 1 ? 0 : static_cast<double>(i) / static_cast<double>(range.num - 1)));
  values.erase(std::unique(values.begin(), values.end()), values.end());  // whole numbers may coincide
  return values;
}

void check_range(const SweepParameter& parameter) {
  const SweepRange& range = *parameter.range;
  const std::string place = "sweep, " + parameter.key;
  const bool is_finite = std::isfinite(range.min) && std::isfinite(range.max);
  if (!is_finite || range.min > range.max)
    refuse(place, "min is above max, or one of them is not finite", "min <= max");
  if (range.is_log && range.min <= 0) refuse(place, "log = true, but min is not above 0", "min > 0");
  constexpr double kExact = 0x1p53;
  if (range.is_integer && std::max(std::abs(range.min), std::abs(range.max)) > kExact)
    refuse(place, "a whole number beyond 2^53", "smaller limits");
}

void check(const SweepDefinition& definition) {
  if (definition.parameters.empty())
    refuse("sweep", "there are no parameters", "at least one key with values",
           "[parameters] in the sweep file, or --sweep optimizer.lr=1e-4,3e-4");
  std::set<std::string> keys;
  for (const SweepParameter& parameter : definition.parameters) {
    if (!keys.insert(parameter.key).second)
      refuse("sweep, " + parameter.key, "the key is given twice", "one list");
    for (const char* reserved : {"name", "run.dir", "checkpoint.resume"})
      if (parameter.key == reserved)
        refuse("sweep, " + parameter.key, "the sweep sets this key itself", "another key");
    if (parameter.range)
      check_range(parameter);
    else if (parameter.values.empty())
      refuse("sweep, " + parameter.key, "the list is empty", "at least one value");
  }
}

// Fails before it multiplies out.
std::vector<std::vector<std::string>> grid(const std::vector<SweepParameter>& parameters) {
  std::vector<std::vector<std::string>> rows{{}};
  for (const SweepParameter& parameter : parameters) {
    const auto values = grid_values(parameter);
    if (rows.size() * values.size() > static_cast<std::size_t>(kMaxSweepRuns))
      refuse("sweep", "the grid has more than " + std::to_string(kMaxSweepRuns) + " runs", "fewer values",
             "or method = \"random\" with num_runs");
    std::vector<std::vector<std::string>> longer;
    for (const auto& row : rows)
      for (const std::string& value : values) {
        longer.push_back(row);
        longer.back().push_back(value);
      }
    rows = std::move(longer);
  }
  return rows;
}

std::vector<std::vector<std::string>> random_rows(const SweepDefinition& definition) {
  if (definition.num_runs < 1 || definition.num_runs > kMaxSweepRuns)
    refuse("sweep.num_runs", "it is " + std::to_string(definition.num_runs),
           "1 to " + std::to_string(kMaxSweepRuns) + " for method = \"random\"");
  std::vector<std::vector<std::string>> rows;
  for (std::int64_t i = 0; i < definition.num_runs; ++i) {
    auto& row = rows.emplace_back();
    for (const SweepParameter& parameter : definition.parameters)
      row.push_back(random_value(parameter, random_fraction(definition.seed, i, parameter.key)));
  }
  return rows;
}

}  // namespace

bool is_sweep(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / kSweepPlanFile, ignored);
}

SweepPlan make_plan(const SweepDefinition& definition) {
  check(definition);
  SweepPlan plan{.folder = {},
                 .configs = definition.configs,
                 .overrides = definition.overrides,
                 .monitor = definition.monitor,
                 .mode = definition.mode,
                 .median = definition.median};
  for (const SweepParameter& parameter : definition.parameters) plan.keys.push_back(parameter.key);
  const auto rows = definition.method == "random" ? random_rows(definition) : grid(definition.parameters);
  const std::size_t digits = std::max<std::size_t>(3, std::to_string(rows.size()).size());
  for (const auto& row : rows) {
    std::string number = std::to_string(plan.runs.size() + 1);
    number.insert(0, digits - number.size(), '0');
    plan.runs.push_back({.name = number, .values = row});
  }
  return plan;
}

std::string plan_text(const SweepPlan& plan) {
  ordered_json json{{"version", kPlanVersion},
                    {"folder", plan.folder.string()},
                    {"jobs", plan.jobs},
                    {"monitor", plan.monitor},
                    {"mode", plan.mode},
                    {"median_stopping",
                     {{"on", plan.median.is_on},
                      {"min_epochs", plan.median.min_epochs},
                      {"min_runs", plan.median.min_runs}}},
                    {"overrides", plan.overrides},
                    {"keys", plan.keys},
                    {"runs", ordered_json::array()},
                    {"configs", ordered_json::array()}};
  for (const SweepRun& run : plan.runs) json["runs"].push_back({{"name", run.name}, {"values", run.values}});
  for (const SweepConfigFile& config : plan.configs)
    json["configs"].push_back({{"path", config.path.string()}, {"text", config.text}});
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

SweepPlan parse_plan(const std::string& text, const std::string& place) try {
  const auto json = ordered_json::parse(text);
  if (json.at("version") != kPlanVersion)
    throw ConfigError({.place = place,
                       .found = "a sweep of another version of Kindling",
                       .wanted = "version " + std::to_string(kPlanVersion)});
  const auto& median = json.at("median_stopping");
  SweepPlan plan{.folder = std::string(json.at("folder")),
                 .jobs = json.at("jobs"),
                 .configs = {},
                 .overrides = json.at("overrides"),
                 .monitor = json.at("monitor"),
                 .mode = json.at("mode"),
                 .median = {.is_on = median.at("on"),
                            .min_epochs = median.at("min_epochs"),
                            .min_runs = median.at("min_runs")},
                 .keys = json.at("keys"),
                 .runs = {}};
  for (const auto& run : json.at("runs")) {
    plan.runs.push_back({.name = run.at("name"), .values = run.at("values")});
    const SweepRun& last = plan.runs.back();
    const bool is_number =
        !last.name.empty() && last.name.find_first_not_of("0123456789") == std::string::npos;
    if (!is_number || last.values.size() != plan.keys.size())
      throw ConfigError({.place = place, .found = "a run without a number, or without a value for each key"});
  }
  for (const auto& config : json.at("configs"))
    plan.configs.push_back({.path = std::string(config.at("path")), .text = config.at("text")});
  return plan;
} catch (const nlohmann::json::exception& error) {
  throw ConfigError({.place = place,
                     .found = std::string("not the plan of a sweep: ") + error.what(),
                     .wanted = "a file written by kindling sweep",
                     .remedy = "start the sweep again in another directory"});
}

std::vector<std::string> plan_differences(const SweepPlan& was, const SweepPlan& now) {
  std::vector<std::string> lines;
  const auto compare = [&](const std::string& what, const std::string& a, const std::string& b) {
    if (a != b)
      lines.push_back(what + ": was " + (a.empty() ? "not set" : a) + ", now " + (b.empty() ? "not set" : b));
  };
  const auto listed = [](const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
    return text;
  };
  compare("keys", listed(was.keys), listed(now.keys));
  compare("number of runs", std::to_string(was.runs.size()), std::to_string(now.runs.size()));
  compare("overrides", listed(was.overrides), listed(now.overrides));
  compare("monitor", was.monitor + " " + was.mode, now.monitor + " " + now.mode);
  if (was.median != now.median) lines.push_back("the options of median_stopping have changed");
  for (std::size_t i = 0; i < std::max(was.configs.size(), now.configs.size()); ++i) {
    if (i >= was.configs.size())
      lines.push_back("config " + now.configs[i].path.string() + ": it was not used before");
    else if (i >= now.configs.size())
      lines.push_back("config " + was.configs[i].path.string() + ": it is not used now");
    else if (was.configs[i].path != now.configs[i].path)
      compare("config", was.configs[i].path.string(), now.configs[i].path.string());
    else if (was.configs[i].text != now.configs[i].text)
      lines.push_back("config " + now.configs[i].path.string() + ": its text has changed");
  }
  if (was.keys == now.keys)
    for (std::size_t i = 0; i < std::min(was.runs.size(), now.runs.size()); ++i)
      for (std::size_t k = 0; k < was.keys.size(); ++k)
        compare("run " + was.runs[i].name + ": " + was.keys[k], was.runs[i].values[k], now.runs[i].values[k]);
  constexpr std::size_t kMaxLines = 10;
  if (lines.size() > kMaxLines) {
    const std::size_t more = lines.size() - kMaxLines;
    lines.resize(kMaxLines);
    lines.push_back("and " + std::to_string(more) + " more");
  }
  return lines;
}

}  // namespace kindling
