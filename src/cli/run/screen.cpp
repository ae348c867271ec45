#include "cli/run/screen.h"

#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <iostream>

#include "base/joined.h"
#include "cli/run/lost_output.h"
#include "kindling/base/error.h"
#include "kindling/base/number_text.h"
#include "kindling/base/text.h"
#include "kindling/device/host_info.h"
#include "kindling/loggers/terminal.h"
#include "kindling/training/trainer.h"
#include "loggers/metric_charts.h"

namespace kindling {
namespace {

ProgressOptions progress_options(const Request& request) {
  const bool terminal = is_terminal(STDERR_FILENO);
  ProgressOptions options;
  options.mode = terminal ? ProgressMode::bar : ProgressMode::plain;
  if (request.progress == "bar") options.mode = ProgressMode::bar;
  if (request.progress == "plain") options.mode = ProgressMode::plain;
  if (request.progress == "none" || request.quiet) options.mode = ProgressMode::none;
  options.color = request.color == "always" || (request.color == "auto" && wants_color(STDERR_FILENO));
  options.width = terminal ? terminal_width(STDERR_FILENO) : 120;
  return options;
}

std::string grouped(std::int64_t number) {
  std::string text = std::to_string(number);
  for (auto at = static_cast<std::int64_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<std::size_t>(at), ",");
  return text;
}

void show_layers(const std::vector<LayerRow>& layers, std::ostream& out) {
  const auto shape = [](const auto& sizes) { return sizes.empty() ? "" : shape_text(sizes); };
  std::vector<std::vector<std::string>> rows;
  std::int64_t total = 0;
  for (const auto& row : layers) {
    if (row.num_parameters == 0) continue;
    rows.push_back({"  " + row.name + " " + row.type, shape(row.input_shape), shape(row.output_shape),
                    grouped(row.num_parameters)});
    total += row.num_parameters;
  }
  out << table_text({{.title = "   layer", .width = 19},
                     {.title = "in", .width = 15},
                     {.title = "out", .width = 15},
                     {.title = "params", .right = true, .width = 9}},
                    rows)
      << "   total " << grouped(total) << " params\n";
}

std::string device_text(Device device) {
  if (!device.is_cpu()) return device.str();
  const HostInfo host = host_info();
  return "cpu  " + host.cpu_model + "  " + std::to_string(host.memory_total_bytes >> 30) + " GiB";
}

// "val_acc" → "val acc".
std::string title(std::string name) {
  std::ranges::replace(name, '_', ' ');
  return name;
}

// Names in the saved state.
const std::string kMetric = "metric.", kBest = "best", kBestEpoch = "best_epoch";

double number_of(const std::string& text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  if (std::from_chars(text.data(), end, value).ptr == end) return value;
  throw CheckpointError(
      {.place = "the screen's saved state", .found = "'" + text + "'", .wanted = "a number"});
}

}  // namespace

Screen::Screen(const Request& request, Heading heading, EpochTableOptions monitored)
    : heading_(std::move(heading)),
      quiet_(request.quiet),
      has_color_(request.color == "always" || (request.color == "auto" && wants_color(STDOUT_FILENO))),
      monitored_(monitored.monitor),
      table_(std::cout, monitored),
      progress_(std::cerr, progress_options(request)),
      best_(monitored.higher_is_better) {}

void Screen::on_fit_start(Trainer& trainer, Module&) {
  start_ = std::chrono::steady_clock::now();
  layers_ = trainer.layer_summary(trainer.model(), *trainer.data());
  if (quiet_) return;
  std::cout << "config   " << heading_.configs << "   run  " << heading_.run << "   seed " << heading_.seed
            << "\n"
            << "device   " << device_text(trainer.device()) << "   precision " << trainer.options().precision
            << "   LibTorch " << TORCH_VERSION_MAJOR << "." << TORCH_VERSION_MINOR << "\n";
  if (!heading_.resume.empty()) std::cout << "resume   " << heading_.resume << "\n";
  show_layers(layers_, std::cout);
  report_lost_output();
}

void Screen::on_train_batch_end(Trainer& trainer, Module&) {
  if (!progress_.due()) return;
  const TrainerProgress at = trainer.progress();
  ProgressState state{.at = at,
                      .max_epochs = trainer.options().max_epochs.value_or(0),
                      .num_batches = at.num_train_batches,
                      .max_steps = trainer.options().max_steps.value_or(0),
                      .elapsed_s = at.epoch_seconds,
                      .data_share = at.data_wait_seconds / at.epoch_seconds};
  for (const auto& [name, value] : trainer.preview())
    if (name.starts_with("train_")) state.values.emplace_back(name.substr(6), value);
  progress_.show(state);
}

void Screen::on_validation_record(Trainer&, Module&, const Record& record) { observe(record); }

void Screen::observe(const Record& record) {
  const double* value = record.find(monitored_);
  if (value != nullptr && has_finite_losses(record) && best_.update(*value)) best_epoch_ = record.epoch;
}

void Screen::on_epoch_end(Trainer&, Module&, const Record& record) {
  observe(record);
  metrics_ = Metrics(record.values.begin(), record.values.end());
  progress_.clear();
  if (quiet_) return;
  table_.write(record);
  report_lost_output();
}

void Screen::on_fit_end(Trainer&, Module&, const FitResult&) { progress_.clear(); }

void Screen::save_state(StateDict& state) const {
  for (const auto& [name, value] : metrics_) state.metadata[kMetric + name] = number_text(value);
  if (!best_.value()) return;
  state.metadata[kBest] = number_text(*best_.value());
  state.metadata[kBestEpoch] = number_text(static_cast<double>(best_epoch_));
}

void Screen::load_state(const StateDict& state) {
  for (const auto& [name, text] : state.metadata) {
    const double value = number_of(text);
    if (name.starts_with(kMetric)) metrics_[name.substr(kMetric.size())] = value;
    if (name == kBestEpoch) best_epoch_ = static_cast<std::int64_t>(value);
    if (name != kBest) continue;
    best_.update(value);
    table_.set_best(value);
  }
}

void Screen::show_curves(const RunMetrics& metrics) const {
  constexpr std::size_t kFewest = 3;  // points that make a curve
  constexpr int kMostColumns = 80, kRows = 8;
  if (quiet_ || !is_terminal(STDOUT_FILENO)) return;
  std::vector<std::string> names;
  for (const std::string& name : metrics.names())
    if (family_of(name) == "loss" && metrics.find(name)->points().size() >= kFewest) names.push_back(name);
  const int columns = std::min(terminal_width(STDOUT_FILENO), kMostColumns);
  for (const Chart& chart : charts_of_run(metrics, names))
    std::cout << to_text(chart, columns, kRows, has_color_);
}

void Screen::show_end(const FitResult& result, const std::string& best_saved) const {
  const std::string_view how = result.status == FitStatus::finished     ? "done in "
                               : result.status == FitStatus::diverged   ? "diverged after "
                               : result.reason == FitReason::early_stop ? "stopped early after "
                                                                        : "stopped after ";
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  std::cout << how << fixed_text(seconds, seconds < 10 ? 1 : 0) << " s";
  if (best_.value())
    std::cout << "   best " << title(monitored_) << " " << fixed_text(*best_.value(), 4) << " @ epoch "
              << best_epoch_;
  if (!best_saved.empty()) std::cout << "   " << best_saved;
  std::cout << "   " << heading_.run << "\n" << std::flush;
}

}  // namespace kindling
