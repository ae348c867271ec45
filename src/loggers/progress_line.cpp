#include "kindling/loggers/progress_line.h"

#include <algorithm>
#include <iostream>
#include <limits>
#include <string_view>
#include <utility>

#include "base/logging.h"
#include "base/system.h"
#include "kindling/base/number_text.h"
#include "kindling/base/text.h"
#include "loggers/metric_text.h"

namespace kindling {
namespace {

constexpr double kRedrawSeconds = 0.1;
constexpr double kPlainSeconds = 30;
constexpr int kCallsWithoutClock = 7;  // after two calls of due() within one tick of the clock
constexpr std::int64_t kBarColumns = 14;
constexpr std::string_view kDone = "━";
constexpr std::string_view kOpen = "─";
// The cursor stays at the start of a drawn line. When a terminal gets narrower and wraps the line, the cursor
// thus stays above all of its rows.
constexpr std::string_view kStart = "\r";
// Keeps a line that is too long in one row, for example if the terminal has just been narrowed.
constexpr std::string_view kNoWrap = "\x1b[?7l", kWrap = "\x1b[?7h";
constexpr std::string_view kGreen = "\x1b[32m";
constexpr std::string_view kPlainColor = "\x1b[0m";
constexpr int kUnlimited = std::numeric_limits<int>::max();

// The batches that the line counts: those of the validation while one is running, else of the training.
struct Counted {
  std::int64_t done, total;
  const char* label;
};

Counted batches_of(const ProgressState& state) {
  if (state.num_val_batches > 0) return {state.val_batch, state.num_val_batches, "val "};
  return {state.at.batch, state.num_batches, ""};
}

std::string bar_text(const Counted& batches) {
  const std::int64_t done =
      std::clamp<std::int64_t>(kBarColumns * batches.done / batches.total, 0, kBarColumns);
  std::string bar;
  for (std::int64_t i = 0; i < kBarColumns; ++i) bar += i < done ? kDone : kOpen;
  return bar;
}

std::string of_total(std::int64_t part, std::int64_t total) {
  return std::to_string(part) + (total > 0 ? "/" + std::to_string(total) : "");
}

std::vector<std::string> parts_of(const ProgressState& state, bool bar) {
  std::vector<std::string> parts = {"epoch " + of_total(state.at.epoch + 1, state.max_epochs)};
  if (state.max_epochs <= 0 && state.max_steps > 0) {
    parts.push_back("step " + of_total(state.at.global_step, state.max_steps));
  }
  const Counted batches = batches_of(state);
  const bool has_end = batches.total > 0;
  if (bar && has_end) parts.push_back(bar_text(batches));
  parts.push_back(batches.label + of_total(batches.done, batches.total));
  if (has_end) parts.push_back(std::to_string(100 * batches.done / batches.total) + "%");
  const double rate = state.elapsed_s > 0 ? static_cast<double>(batches.done) / state.elapsed_s : 0;
  std::string time = clock_text(state.elapsed_s);
  if (has_end && rate > 0) time += "<" + clock_text(static_cast<double>(batches.total - batches.done) / rate);
  parts.push_back(time);
  parts.push_back(short_text(rate, 3) + " it/s");
  if (state.run_left_s >= 0) parts.push_back("eta " + clock_text(state.run_left_s));
  for (const auto& [name, value] : state.values) parts.push_back(one_line(name) + " " + metric_text(value));
  if (state.data_share >= 0) parts.push_back("data " + fixed_text(100 * state.data_share, 0) + "%");
  if (state.memory_bytes > 0)
    parts.push_back("mem " + bytes_text(static_cast<double>(state.memory_bytes), 3));
  return parts;
}

std::string with_green_bar(std::string text) {
  const std::size_t first = text.find(kDone), last = text.rfind(kDone);
  if (first == std::string::npos) return text;
  text.insert(last + kDone.size(), kPlainColor);
  return text.insert(first, kGreen);
}

}  // namespace

std::string progress_text(const ProgressState& state, int width, bool bar) {
  std::string text;
  for (const std::string& part : parts_of(state, bar)) {
    const std::string longer = text + (text.empty() ? "" : "  ") + part;
    if (display_width(longer) > static_cast<std::size_t>(width)) break;
    text = longer;
  }
  return text;
}

ProgressLine::ProgressLine(std::ostream& out, ProgressOptions options)
    : out_(out), options_(std::move(options)) {
  if (!options_.clock) options_.clock = coarse_steady_seconds;
  next_s_ = options_.clock() + (options_.mode == ProgressMode::plain ? kPlainSeconds : 0);
}

bool ProgressLine::due() const {
  if (options_.mode == ProgressMode::none) return false;
  if (num_calls_without_clock_ > 0) {
    --num_calls_without_clock_;
    return false;
  }
  const double now_s = options_.clock();
  if (now_s >= next_s_) return true;
  if (now_s == std::exchange(checked_s_, now_s)) num_calls_without_clock_ = kCallsWithoutClock;
  return false;
}

void ProgressLine::show(const ProgressState& state) {
  if (options_.mode == ProgressMode::none) return;
  if (options_.mode == ProgressMode::plain) {
    out_ << progress_text(state, kUnlimited, false) << '\n' << std::flush;
    next_s_ = options_.clock() + kPlainSeconds;
    return;
  }
  // One column stays free: a terminal may wrap when its last column is filled.
  const int columns = options_.columns ? options_.columns() : options_.width;
  const std::string text = progress_text(state, std::max(columns - 1, 0), true);
  const std::string shown = options_.color ? with_green_bar(text) : text;
  write_in_place(std::string(kNoWrap).append(shown).append(kWrap));
  next_s_ = options_.clock() + kRedrawSeconds;
  drawn_ = true;
}

void ProgressLine::clear() {
  if (!drawn_) return;
  write_in_place("");
  drawn_ = false;
}

// In one call, so that an ended process leaves no open escape sequence.
void ProgressLine::write_in_place(const std::string& text) {
  std::string whole(kStart);
  whole.append(kEraseLine).append(text).append(kStart);
  out_ << whole << std::flush;
  if (&out_ == &std::cerr) has_stderr_line = !text.empty();
}

}  // namespace kindling
