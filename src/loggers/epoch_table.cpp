#include "kindling/loggers/epoch_table.h"

#include <algorithm>
#include <array>
#include <ostream>
#include <string_view>
#include <utility>

#include "kindling/base/number_text.h"
#include "loggers/metric_charts.h"
#include "loggers/metric_text.h"

namespace kindling {
namespace {

struct KnownColumn {
  std::string_view name, title;
  std::size_t width;
  std::string (*text)(double);
};

std::string time_text(double seconds) {
  constexpr double kHour = 3600;
  const double hours = seconds / kHour;
  if (seconds < 99.95) return fixed_text(seconds, seconds < 9.995 ? 2 : 1) + "s";
  return hours < 1 ? clock_text(seconds) : fixed_text(hours, hours < 9.995 ? 2 : hours < 99.95 ? 1 : 0) + "h";
}
std::string rate_text(double value) { return short_text(value, 4); }
std::string whole_text(double value) { return fixed_text(value, 0); }

constexpr std::array<KnownColumn, 6> kKnown = {{{"train_loss", "train loss", 10, metric_text},
                                                {"train_acc", "acc", 6, metric_text},
                                                {"val_loss", "val loss", 8, metric_text},
                                                {"val_acc", "val acc", 7, metric_text},
                                                {"epoch_time_s", "time", 5, time_text},
                                                {"lr", "lr", 7, rate_text}}};

// Returns the number with all digits of its column, with fewer if they do not fit in `width`.
std::string text_of(std::string_view name, double value, std::size_t width) {
  const auto known = std::ranges::find(kKnown, name, &KnownColumn::name);
  const bool is_count = name == "skipped_steps" || name == "spikes" || name == "passed_batches";
  std::string text = (known != kKnown.end() ? known->text : is_count ? whole_text : metric_text)(value);
  for (int digits = 4; digits > 0 && text.size() > width; --digits) text = short_text(value, digits);
  return text;
}

constexpr std::size_t kNarrowest = 8;  // for user-defined columns
constexpr std::string_view kBest = " * best", kGap = "  ", kBestColor = "\x1b[32m",
                           kNotFiniteColor = "\x1b[31m", kEndColor = "\x1b[0m";

}  // namespace

EpochTable::EpochTable(std::ostream& out, EpochTableOptions options)
    : out_(out), options_(std::move(options)), best_(options_.higher_is_better) {}

void EpochTable::write(const Record& record) {
  if (record.kind != Record::Kind::epoch) return;
  if (columns_.empty()) {
    choose_columns(record);
    omit_columns();
    std::vector<std::string> titles;
    for (const TextColumn& column : columns_) titles.push_back(column.title);
    out_ << table_line(columns_, titles, kGap) << '\n';
  }
  const double* const monitored = record.find(options_.monitor);
  const bool best = monitored != nullptr && has_finite_losses(record) && best_.update(*monitored);
  std::vector<std::string> cells{std::to_string(record.epoch)};
  for (std::size_t i = 0; i < names_.size(); ++i) {
    const double* const value = record.find(names_[i]);
    cells.push_back(value != nullptr ? text_of(names_[i], *value, columns_[i + 1].width) : "");
  }
  cells.emplace_back(best ? kBest : "");
  const std::string row = table_line(columns_, cells, kGap);
  out_ << (options_.color ? colored(row, cells, best) : row) << '\n' << std::flush;
}

// Colours after the padding, because escape sequences would count as columns.
std::string EpochTable::colored(const std::string& row, const std::vector<std::string>& cells,
                                bool best) const {
  std::string text(best ? kBestColor : "");
  std::size_t begin = 0;
  for (std::size_t i = 0; i < cells.size() && begin < row.size(); ++i) {
    const std::string cell = padded(cells[i], columns_[i].width, columns_[i].right);
    const std::string shown = row.substr(begin, cell.size() + kGap.size());
    const bool is_finite = cell.find("nan") == std::string::npos && cell.find("inf") == std::string::npos;
    if (is_finite)
      text += shown;
    else
      text.append(kNotFiniteColor).append(shown).append(kEndColor).append(best ? kBestColor : "");
    begin += shown.size();
  }
  return best ? text.append(kEndColor) : text;
}

void EpochTable::choose_columns(const Record& first) {
  columns_ = {{.title = "epoch", .right = true, .width = 5}};
  const auto add = [&](std::string_view name, std::string_view title, std::size_t width) {
    names_.emplace_back(name);
    columns_.push_back({.title = one_line(title), .right = true, .width = width});
  };
  for (const KnownColumn& known : kKnown) {
    if (first.find(known.name) != nullptr) add(known.name, known.title, known.width);
  }
  for (const auto& [name, value] : first.values) {
    const bool known = std::ranges::find(kKnown, name, &KnownColumn::name) != kKnown.end();
    // Values of a metric with many numbers, of the gradients, or of the machine, which files have.
    const bool is_part = name.ends_with(']') || is_part_of_metric(name);
    const bool is_hidden = is_machine_metric(name) || (is_part && name != options_.monitor);
    if (!known && !is_hidden) add(name, name, std::max(display_width(one_line(name)), kNarrowest));
  }
  columns_.emplace_back();
}

// Omits columns until a row fits: the learning rate, the time, user-defined names from the last on, and then
// the known ones from the last on. The monitored column and the last one left are kept.
void EpochTable::omit_columns() {
  const auto width = [&] {
    std::size_t sum = kBest.size();
    for (const TextColumn& column : columns_) sum += column.width + kGap.size();
    return sum - kGap.size();  // the last column, "* best", has no width of its own
  };
  const auto omit = [&](std::size_t i) {
    names_.erase(names_.begin() + static_cast<std::ptrdiff_t>(i));
    columns_.erase(columns_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  };
  const auto rank = [&](const std::string& name) {  // the largest is omitted first
    const auto known = std::ranges::find(kKnown, name, &KnownColumn::name);
    const bool is_machine = name == "lr" || name == "epoch_time_s";
    return is_machine ? 2 : known == kKnown.end() ? 1 : 0;
  };
  while (options_.max_width > 0 && width() > static_cast<std::size_t>(options_.max_width)) {
    std::size_t chosen = names_.size();
    for (std::size_t i = 0; i < names_.size(); ++i)
      if (names_[i] != options_.monitor &&
          (chosen == names_.size() || rank(names_[i]) >= rank(names_[chosen])))
        chosen = i;
    if (chosen == names_.size() || names_.size() == 1) return;
    omit(chosen);
  }
}

}  // namespace kindling
