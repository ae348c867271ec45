#include <nlohmann/json.hpp>

#include "cli/sweep/sweep_plan.h"
#include "kindling/base/error.h"

namespace kindling {
namespace {

using nlohmann::ordered_json;

constexpr int kPlanVersion = 1;

}  // namespace

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

}  // namespace kindling
