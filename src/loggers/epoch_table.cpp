#include "kindling/loggers/epoch_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <ostream>
#include <string_view>
#include <utility>

#include "kindling/base/number_text.h"

namespace kindling {
namespace {

struct KnownColumn {
  std::string_view name, title;
  std::size_t width;
  std::string (*text)(double);
};

std::string loss_text(double value) {
  const double size = std::abs(value);
  return size == 0 || (size >= 1e-3 && size < 1e5) ? fixed_text(value, 4) : short_text(value, 4);
}
std::string accuracy_text(double value) { return fixed_text(value, 3); }
std::string time_text(double seconds) {
  return seconds < 100 ? fixed_text(seconds, seconds < 10 ? 2 : 1) + "s" : clock_text(seconds);
}
std::string other_text(double value) { return short_text(value, 4); }

constexpr std::array<KnownColumn, 6> kKnown = {{{"train_loss", "train loss", 10, loss_text},
                                                {"train_acc", "acc", 5, accuracy_text},
                                                {"val_loss", "val loss", 8, loss_text},
                                                {"val_acc", "val acc", 7, accuracy_text},
                                                {"epoch_time_s", "time", 5, time_text},
                                                {"lr", "lr", 7, other_text}}};

// Written to files, not shown.
constexpr std::array<std::string_view, 7> kBookkeeping = {
    "samples_per_s",        "data_wait_share",       "host_waits",          "device_to_host_copies",
    "device_to_host_bytes", "host_to_device_copies", "host_to_device_bytes"};

std::string text_of(std::string_view name, double value) {
  const auto known = std::ranges::find(kKnown, name, &KnownColumn::name);
  return known == kKnown.end() ? other_text(value) : known->text(value);
}

constexpr std::size_t kNarrowest = 8;  // for user-defined columns

}  // namespace

EpochTable::EpochTable(std::ostream& out, EpochTableOptions options)
    : out_(out), options_(std::move(options)), best_(options_.higher_is_better) {}

void EpochTable::write(const Record& record) {
  if (record.kind != Record::Kind::epoch) return;
  if (columns_.empty()) {
    choose_columns(record);
    std::vector<std::string> titles;
    for (const TextColumn& column : columns_) titles.push_back(column.title + ' ');
    out_ << table_line(columns_, titles, " ") << '\n';
  }
  const double* const monitored = record.find(options_.monitor);
  const bool best = monitored != nullptr && has_finite_losses(record) && best_.update(*monitored);
  std::vector<std::string> cells{std::to_string(record.epoch) + ' '};
  for (const std::string& name : names_) {
    const double* const value = record.find(name);
    cells.push_back((value != nullptr ? text_of(name, *value) : "") +
                    (best && name == options_.monitor ? '*' : ' '));
  }
  cells.emplace_back(best ? " * best" : "");
  out_ << table_line(columns_, cells, " ") << '\n' << std::flush;
}

// Each column has one character more than its numbers need, for the star.
void EpochTable::choose_columns(const Record& first) {
  columns_ = {{.title = "epoch", .right = true, .width = 6}};
  const auto add = [&](std::string_view name, std::string_view title, std::size_t width) {
    names_.emplace_back(name);
    columns_.push_back({.title = one_line(title), .right = true, .width = width + 1});
  };
  for (const KnownColumn& known : kKnown) {
    if (first.find(known.name) != nullptr) add(known.name, known.title, known.width);
  }
  for (const auto& [name, value] : first.values) {
    const bool known = std::ranges::find(kKnown, name, &KnownColumn::name) != kKnown.end();
    const bool bookkeeping = std::ranges::find(kBookkeeping, name) != kBookkeeping.end();
    // Values of a metric with many numbers, of the time, of the gradients.
    const bool is_part =
        (name.ends_with(']') || name.starts_with("time_share/") || name.starts_with("grad_norm/")) &&
        name != options_.monitor;
    if (!known && !bookkeeping && !is_part)
      add(name, name, std::max(display_width(one_line(name)), kNarrowest));
  }
  columns_.emplace_back();
}

}  // namespace kindling
