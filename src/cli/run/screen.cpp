#include "cli/run/screen.h"

#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <exception>
#include <iostream>
#include <sstream>
#include <utility>

#include "base/joined.h"
#include "base/system.h"
#include "cli/run/lost_output.h"
#include "kindling/base/error.h"
#include "kindling/base/number_text.h"
#include "kindling/base/text.h"
#include "kindling/device/device_memory.h"
#include "kindling/device/host_info.h"
#include "kindling/loggers/terminal.h"
#include "kindling/training/early_stopping.h"
#include "kindling/training/trainer.h"
#include "loggers/metric_charts.h"
#include "loggers/metric_text.h"

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
  options.width = 120;
  if (terminal) options.columns = [] { return terminal_width(STDERR_FILENO); };
  return options;
}

// "23,400 samples/s"
std::string rate_text(double samples_per_s) {
  if (samples_per_s < 100) return short_text(samples_per_s, 3) + " samples/s";
  const double unit = std::pow(10, std::floor(std::log10(samples_per_s)) - 2);  // three digits count
  return grouped_number(std::llround(std::round(samples_per_s / unit) * unit)) + " samples/s";
}

// "203,530 params (200,960 trainable, 2,570 frozen), 795 KiB, 203,264 multiply-adds per sample". The last
// part is omitted if it is not known for all layers.
std::string total_text(const std::vector<LayerRow>& layers, bool is_short) {
  std::int64_t parameters = 0, trainable = 0, bytes = 0;
  std::optional<std::int64_t> multiply_adds = 0;
  for (const LayerRow& row : layers) {
    parameters += row.num_parameters;
    trainable += row.num_trainable;
    bytes += row.parameter_bytes;
    multiply_adds = multiply_adds && row.multiply_adds ? std::optional(*multiply_adds + *row.multiply_adds)
                                                       : std::nullopt;
  }
  if (is_short) return grouped_number(parameters) + " params, " + bytes_text(static_cast<double>(bytes), 3);
  std::string text = grouped_number(parameters) + " params (" + grouped_number(trainable) + " trainable";
  if (trainable < parameters) text += ", " + grouped_number(parameters - trainable) + " frozen";
  text += "), " + bytes_text(static_cast<double>(bytes), 3);
  if (multiply_adds.value_or(0) > 0)
    text += ", " + grouped_number(*multiply_adds) + " multiply-adds per sample";
  return text;
}

std::size_t longest_line(const std::string& text) {
  std::size_t longest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) longest = std::max(longest, display_width(line));
  return longest;
}

// The layers with parameters. If `max_width` is not 0, the table loses the input shapes, and then the output
// shapes, until it fits.
std::string layer_table(const std::vector<LayerRow>& layers, int max_width) {
  const auto shape = [](const auto& sizes) { return sizes.empty() ? "" : shape_text(sizes); };
  std::vector<TextColumn> columns{{.title = "   layer", .width = 19},
                                  {.title = "in", .width = 15},
                                  {.title = "out", .width = 15},
                                  {.title = "params", .right = true, .width = 9}};
  std::vector<std::vector<std::string>> rows;
  for (const auto& row : layers)
    if (row.num_parameters > 0)
      rows.push_back({"  " + row.name + " " + row.type, shape(row.input_shape), shape(row.output_shape),
                      grouped_number(row.num_parameters)});
  const auto fits = [&](const std::string& text) {
    return max_width == 0 || longest_line(text) <= static_cast<std::size_t>(max_width);
  };
  std::string text = table_text(columns, rows);
  while (!fits(text) && columns.size() > 2) {
    columns.erase(columns.begin() + 1);
    for (auto& row : rows) row.erase(row.begin() + 1);
    text = table_text(columns, rows);
  }
  const auto total = [&](bool is_short) { return "   total " + total_text(layers, is_short) + "\n"; };
  return text + total(!fits(total(false)));
}

// 0 if the output is not a terminal, whose lines may have any length.
int width_of_stdout() { return is_terminal(STDOUT_FILENO) ? terminal_width(STDOUT_FILENO) : 0; }

// Returns a line with parts after a label, broken into lines of at most `max_width` columns if that is not 0:
// between parts, else at spaces. Words keep their whole length, so that paths can be copied.
std::string labeled_line(const std::string& label, const std::vector<std::string>& parts, int max_width) {
  const std::string indentation(9, ' ');
  const auto width = static_cast<std::size_t>(max_width);
  const auto fits = [&](const std::string& text) { return max_width == 0 || display_width(text) <= width; };
  std::string lines, line = label;
  bool is_empty = true;  // the line, apart from its label or indentation
  const auto start_line = [&] {
    lines += line + "\n";
    line = indentation;
    is_empty = true;
  };
  for (const std::string& part : parts) {
    const std::string gap = is_empty ? "" : "   ";
    if (fits(line + gap + part)) {
      line += gap + part;
      is_empty = false;
      continue;
    }
    if (!is_empty) start_line();
    std::size_t at = 0;
    for (std::size_t word; (word = part.find_first_not_of(' ', at)) != std::string::npos;) {
      const std::size_t end = std::min(part.find(' ', word), part.size());
      const std::string text = part.substr(word, end - word), with_gap = part.substr(at, end - at);
      at = end;
      if (!is_empty && !fits(line + with_gap) && fits(indentation + text)) start_line();
      line += is_empty ? text : with_gap;
      is_empty = false;
    }
  }
  return lines + line + "\n";
}

EpochTableOptions for_stdout(EpochTableOptions options, bool color) {
  options.color = color;
  options.max_width = width_of_stdout();
  return options;
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

// Empty for an early stop that another callback has requested.
std::string early_stop_reason(const TrainerOptions& options) {
  for (const auto& callback : options.callbacks) {
    const auto* stopping = dynamic_cast<const EarlyStopping*>(callback.get());
    if (stopping != nullptr && stopping->wants_stop()) return stopping->stop_reason();
  }
  return {};
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

bool is_complete(const FitResult& result) {
  return result.reason == FitReason::finished || result.reason == FitReason::early_stop;
}

std::string grouped_number(std::int64_t number) {
  std::string text = std::to_string(number);
  for (auto at = static_cast<std::int64_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<std::size_t>(at), ",");
  return text;
}

Screen::Screen(const Request& request, Heading heading, EpochTableOptions monitored)
    : heading_(std::move(heading)),
      quiet_(request.quiet),
      has_color_(request.color == "always" || (request.color == "auto" && wants_color(STDOUT_FILENO))),
      monitored_(monitored.monitor),
      table_(std::cout, for_stdout(monitored, has_color_)),
      progress_(std::cerr, progress_options(request)),
      best_(monitored.higher_is_better) {}

void Screen::on_fit_start(Trainer& trainer, Module&) {
  start_s_ = steady_seconds();
  layers_ = trainer.layer_summary(trainer.model(), *trainer.data());
  if (quiet_) return;
  const int width = width_of_stdout();
  const std::string version = std::to_string(TORCH_VERSION_MAJOR) + "." + std::to_string(TORCH_VERSION_MINOR);
  std::cout << labeled_line(
                   "config   ",
                   {heading_.configs, "run  " + heading_.run, "seed " + std::to_string(heading_.seed)}, width)
            << labeled_line("device   ",
                            {device_text(trainer.device()), "precision " + trainer.options().precision,
                             "LibTorch " + version},
                            width);
  if (!heading_.resume.empty()) std::cout << labeled_line("resume   ", {heading_.resume}, width);
  if (!heading_.chosen.empty()) std::cout << labeled_line("chosen   ", heading_.chosen, width);
  std::cout << layer_table(layers_, width);
  report_lost_output();
}

ProgressState Screen::progress_state(const Trainer& trainer) {
  constexpr double kMemorySeconds = 1;
  const double now_s = steady_seconds();
  const TrainerProgress at = trainer.progress();
  const RunTimeLeft::Limits limits{.max_epochs = trainer.options().max_epochs.value_or(0),
                                   .max_steps = trainer.options().max_steps.value_or(0),
                                   .num_batches = at.num_train_batches};
  if (now_s - memory_read_s_ >= kMemorySeconds) {
    memory_bytes_ = device_memory(trainer.device()).allocated_bytes;
    memory_read_s_ = now_s;
  }
  return {.at = at,
          .max_epochs = limits.max_epochs,
          .num_batches = limits.num_batches,
          .max_steps = limits.max_steps,
          .elapsed_s = at.epoch_seconds,
          .run_left_s = time_left_.estimate(at, limits, now_s),
          .memory_bytes = memory_bytes_};
}

void Screen::on_train_epoch_start(Trainer& trainer, Module&) {
  if (!time_left_.is_started()) time_left_.start(trainer.progress(), steady_seconds());
}

void Screen::on_validation_start(Trainer&, Module&) { validation_start_s_ = steady_seconds(); }

void Screen::on_validation_batch_end(Trainer& trainer, Module&, std::int64_t batch,
                                     std::int64_t num_batches) {
  if (!progress_.due()) return;
  ProgressState state = progress_state(trainer);
  state.val_batch = batch;
  state.num_val_batches = num_batches;
  state.elapsed_s = steady_seconds() - validation_start_s_;
  progress_.show(state);
}

void Screen::on_train_batch_end(Trainer& trainer, Module&) {
  if (!progress_.due()) return;
  ProgressState state = progress_state(trainer);
  state.data_share = trainer.progress().data_wait_seconds / state.elapsed_s;
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
  const double *rate = record.find("samples_per_s"), *seconds = record.find("epoch_time_s");
  if (rate != nullptr && seconds != nullptr && std::isfinite(*rate)) {
    rated_s_ += *seconds;
    num_samples_ += *rate * *seconds;
  }
  progress_.clear();
  if (quiet_) return;
  table_.write(record);
  report_lost_output();
}

void Screen::on_fit_end(Trainer& trainer, Module&, const FitResult& result) {
  progress_.clear();
  if (result.reason == FitReason::early_stop) stop_reason_ = early_stop_reason(trainer.options());
}

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
  const bool has_reason = !stop_reason_.empty();
  const std::string_view how = result.status == FitStatus::finished || has_reason ? "done in "
                               : result.status == FitStatus::diverged             ? "diverged after "
                               : result.reason == FitReason::early_stop           ? "stopped early after "
                                                                                  : "stopped after ";
  const int width = width_of_stdout();
  if (has_reason) std::cout << labeled_line("stopped early: ", {stop_reason_}, width);
  const double seconds = steady_seconds() - start_s_;
  std::vector<std::string> parts{std::string(how) + fixed_text(seconds, seconds < 10 ? 1 : 0) + " s"};
  if (best_.value())
    parts.push_back("best " + title(monitored_) + " " + metric_text(*best_.value()) + " @ epoch " +
                    std::to_string(best_epoch_));
  if (!best_saved.empty()) parts.push_back(best_saved);
  if (rated_s_ > 0) parts.push_back(rate_text(num_samples_ / rated_s_));
  parts.push_back(heading_.run);
  std::cout << labeled_line("", parts, width);
  show_next_commands(result);
  std::cout << std::flush;
}

void Screen::show_next_commands(const FitResult& result) const {
  if (quiet_ || !is_complete(result)) return;
  const std::string run = shell_word(heading_.run), program = shell_word(heading_.program);
  const std::string predictions = heading_.has_masks ? "masks/" : "predictions.csv";
  const std::vector<std::string> commands{"plot " + run, "predict " + run + " --out " + predictions,
                                          "export " + run + " model.pt2"};
  std::string_view label = "next     ";
  for (const std::string& command : commands)
    std::cout << std::exchange(label, "         ") << program << " " << command << "\n";
}

}  // namespace kindling
