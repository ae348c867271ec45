#include "loggers/metric_charts.h"

#include <algorithm>
#include <array>

namespace kindling {
namespace {

constexpr std::size_t kMostCurves = 12;  // in one chart

constexpr std::array<std::string_view, 9> kMachineMetrics = {
    "epoch_time_s",          "samples_per_s",        "data_wait_share",       "host_waits",
    "device_to_host_copies", "device_to_host_bytes", "host_to_device_copies", "host_to_device_bytes",
    "skipped_samples"};

struct LabelledSeries {
  std::string label;
  const MetricSeries* series;
};

Curve curve_of(const LabelledSeries& labelled, bool is_by_epoch) {
  Curve curve{.label = labelled.label};
  for (const MetricPoint& point : labelled.series->points()) {
    curve.x.push_back(is_by_epoch ? point.epoch : point.global_step);
    curve.y.push_back(point.value);
  }
  return curve;
}

// Draws values of steps in the background of values of epochs.
Chart chart_of(std::string title, std::vector<LabelledSeries> all) {
  const auto is_by_epoch = [](const LabelledSeries& one) { return one.series->is_by_epoch(); };
  const bool has_epochs = std::ranges::any_of(all, is_by_epoch),
             has_steps = !std::ranges::all_of(all, is_by_epoch);
  std::stable_partition(all.begin(), all.end(), is_by_epoch);
  if (all.size() > kMostCurves) {
    title += " (" + std::to_string(kMostCurves) + " of " + std::to_string(all.size()) + " curves)";
    all.resize(kMostCurves);
  }
  Chart chart{.title = std::move(title),
              .xlabel = has_steps ? "step" : "epoch",
              .has_whole_x = true,
              .marks_gaps = true};
  for (const LabelledSeries& one : all) {
    chart.curves.push_back(curve_of(one, !has_steps));
    chart.curves.back().is_background = has_epochs && one.label.ends_with("_step");
  }
  return chart;
}

}  // namespace

bool is_machine_metric(std::string_view name) {
  return std::ranges::find(kMachineMetrics, name) != kMachineMetrics.end() ||
         name.starts_with("time_share/") || name.starts_with("step_time_s/");
}

bool is_part_of_metric(std::string_view name) {
  return name.starts_with("grad_norm/") || name.starts_with("val_rollout_rmse/") ||
         name.starts_with("val_rollout_error/");
}

std::string family_of(std::string_view metric) {
  if (const std::size_t slash = metric.find('/'); slash != std::string_view::npos && slash > 0)
    metric = metric.substr(0, slash);
  for (const std::string_view stage : {"train_", "val_", "test_"})
    if (metric.starts_with(stage) && metric.size() > stage.size()) {
      metric.remove_prefix(stage.size());
      break;
    }
  constexpr std::string_view kStep = "_step";
  if (metric.ends_with(kStep) && metric.size() > kStep.size()) metric.remove_suffix(kStep.size());
  return std::string(metric);
}

std::vector<Chart> charts_of_run(const RunMetrics& run, std::span<const std::string> names) {
  std::vector<std::pair<std::string, std::vector<LabelledSeries>>> families;
  for (const std::string& name : names) {
    const MetricSeries* const series = run.find(name);
    if (series == nullptr) continue;
    const std::string family = family_of(name);
    auto found = std::ranges::find(families, family, [](const auto& one) { return one.first; });
    if (found == families.end()) found = families.insert(found, {family, {}});
    found->second.push_back({name, series});
  }
  // The loss comes first, whatever a run has logged before it, and what belongs to the optimizer last.
  const auto rank = [](const auto& one) {
    return one.first == "loss" ? 0 : one.first == "lr" || one.first == "grad_norm" ? 2 : 1;
  };
  std::ranges::stable_sort(families, std::ranges::less{}, rank);
  std::vector<Chart> charts;
  for (auto& [family, all] : families) charts.push_back(chart_of(family, std::move(all)));
  return charts;
}

std::vector<Chart> charts_of_runs(std::span<const LabelledMetrics> runs, std::span<const std::string> names) {
  std::vector<Chart> charts;
  for (const std::string& name : names) {
    std::vector<LabelledSeries> all;
    for (const auto& [label, metrics] : runs)
      if (const MetricSeries* const series = metrics->find(name)) all.push_back({label, series});
    if (!all.empty()) charts.push_back(chart_of(name, std::move(all)));
  }
  return charts;
}

std::vector<std::string> metric_names(std::span<const LabelledMetrics> runs, bool of_machine) {
  std::vector<std::string> names;
  for (const auto& [label, metrics] : runs)
    for (const std::string& name : metrics->names())
      if (is_machine_metric(name) == of_machine && std::ranges::find(names, name) == names.end())
        names.push_back(name);
  return names;
}

}  // namespace kindling
