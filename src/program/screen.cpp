#include "program/screen.h"

#include <torch/version.h>
#include <unistd.h>

#include <cstdio>
#include <iomanip>
#include <iostream>
#include <sstream>

#include "kindling/loggers/terminal.h"
#include "kindling/training/trainer.h"

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

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const auto size : shape) text += (text.empty() ? "[" : ", ") + std::to_string(size);
  return text.empty() ? "" : text + "]";
}

void show_layers(const std::vector<LayerRow>& layers, std::ostream& out) {
  std::size_t width = 16;
  for (const auto& row : layers) width = std::max(width, row.name.size() + row.type.size() + 2);
  const auto line = [&](const std::string& name, const std::string& in, const std::string& result,
                        const std::string& count) {
    out << "   " << std::left << std::setw(static_cast<int>(width)) << name << std::setw(18) << in
        << std::setw(18) << result << std::right << std::setw(12) << count << "\n";
  };
  line("layer", "in", "out", "params");
  std::int64_t total = 0;
  for (const auto& row : layers) {
    if (row.num_parameters == 0) continue;
    line(row.name + " " + row.type, shape_text(row.input_shape), shape_text(row.output_shape),
         grouped(row.num_parameters));
    total += row.num_parameters;
  }
  out << "   total " << grouped(total) << " params\n";
}

std::string duration_text(double seconds) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(seconds < 10 ? 1 : 0) << seconds << " s";
  return text.str();
}

// "val_acc" → "val acc".
std::string title(std::string name) {
  for (char& c : name)
    if (c == '_') c = ' ';
  return name;
}

}  // namespace

Screen::Screen(const Request& request, EpochTableOptions table)
    : quiet_(request.quiet),
      monitored_(table),
      table_(std::cout, table),
      progress_(std::cerr, progress_options(request)) {}

void Screen::show_heading(const Heading& heading) {
  if (quiet_) return;
  std::cout << "config   " << heading.configs << "   run  " << heading.run << "   seed " << heading.seed
            << "\n"
            << "device   " << heading.device << "   precision 32-true   LibTorch " << TORCH_VERSION_MAJOR
            << "." << TORCH_VERSION_MINOR << "\n";
  show_layers(heading.layers, std::cout);
  std::cout << std::flush;
}

void Screen::on_train_batch_end(Trainer& trainer, Module&) {
  if (!progress_.due()) return;
  const TrainerProgress at = trainer.progress();
  ProgressState state{.epoch = at.epoch + 1,
                      .max_epochs = trainer.options().max_epochs.value_or(0),
                      .batch = at.batch_index,
                      .num_batches = at.num_train_batches,
                      .global_step = at.global_step,
                      .max_steps = trainer.options().max_steps.value_or(0),
                      .elapsed_s = at.epoch_seconds,
                      .values = {},
                      .data_share = at.data_wait_seconds / at.epoch_seconds};
  for (const auto& [name, value] : trainer.preview())
    if (name.starts_with("train_")) state.values.emplace_back(name.substr(6), value);
  progress_.show(state);
}

void Screen::on_epoch_end(Trainer&, Module&, const Record& record) {
  if (const double* seconds = record.find("epoch_time_s")) total_seconds_ += *seconds;
  if (const double* value = record.find(monitored_.monitor)) {
    const bool better =
        !best_ || (monitored_.higher_is_better ? *value > best_->value : *value < best_->value);
    if (better) best_ = {*value, record.epoch};
  }
  progress_.clear();
  if (!quiet_) table_.write(record);
}

void Screen::show_end(const FitResult& result, const std::string& run_folder) {
  progress_.clear();
  std::cout << (result.status == FitStatus::finished ? "done in " : "stopped after ")
            << duration_text(total_seconds_);
  if (best_)
    std::cout << "   best " << title(monitored_.monitor) << " " << std::fixed << std::setprecision(4)
              << best_->value << " @ epoch " << best_->epoch;
  std::cout << "   " << run_folder << "\n" << std::flush;
}

}  // namespace kindling
