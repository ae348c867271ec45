#include "kindling/metrics/progress_board.h"

#include <algorithm>

#include "kindling/base/error.h"
#include "kindling/base/file.h"

namespace kindling {
namespace {

double host_value(const at::Tensor& y) { return *y.detach().to(at::kDouble).const_data_ptr<double>(); }

}  // namespace

ProgressBoard::ProgressBoard(ProgressBoardOptions options) : options_(std::move(options)) {}

void ProgressBoard::draw(double x, double y, std::string_view label, std::int64_t every_n) {
  Point point = point_of(x, label, every_n);
  point.y = y;
  if (waiting_.empty())
    place(point);
  else
    waiting_.push_back(point);  // points keep their order
}

void ProgressBoard::draw(double x, const at::Tensor& y, std::string_view label, std::int64_t every_n) {
  if (!y.defined() || y.numel() != 1)
    throw DataError({.place = "draw(\"" + std::string(label) + "\")",
                     .found = y.defined() ? std::to_string(y.numel()) + " elements" : "an undefined tensor",
                     .wanted = "one number",
                     .remedy = "draw its mean()"});
  if (y.is_cpu()) return draw(x, host_value(y), label, every_n);
  Point point = point_of(x, label, every_n);
  point.log = &log_on(y.device());
  point.row = point.log->num_rows();
  point.log->mark(point.log->column("y"), y);
  point.log->append({.global_step = point.row, .batch = point.row});
  waiting_.push_back(point);
}

void ProgressBoard::redraw() {
  for (const auto& log : logs_) log->move_to_host();
  for (Point& point : waiting_) {
    if (point.log != nullptr) point.y = point.log->value(point.row, 0).value();
    place(point);
  }
  waiting_.clear();
  for (const auto& log : logs_) log->clear();
}

void ProgressBoard::clear() {
  waiting_.clear();
  lines_.clear();
  for (const auto& log : logs_) log->clear();
}

Chart ProgressBoard::chart() {
  redraw();
  Chart chart{.title = options_.title,
              .xlabel = options_.xlabel,
              .ylabel = options_.ylabel,
              .xlim = options_.xlim,
              .ylim = options_.ylim,
              .xscale = options_.xscale,
              .yscale = options_.yscale};
  for (const Line& line : lines_) chart.curves.push_back(line.curve);
  return chart;
}

std::string ProgressBoard::text(int columns, int rows) { return to_text(chart(), columns, rows); }

void ProgressBoard::write_svg(const std::filesystem::path& path) {
  write_file_atomically(path, to_svg(chart()));
}

ProgressBoard::Point ProgressBoard::point_of(double x, std::string_view label, std::int64_t every_n) {
  if (every_n < 1)
    throw ConfigError({.place = "draw(\"" + std::string(label) + "\")",
                       .found = "every_n is " + std::to_string(every_n),
                       .wanted = "at least 1"});
  const auto line = std::find_if(lines_.begin(), lines_.end(),
                                 [&](const Line& known) { return known.curve.label == label; });
  const auto number = static_cast<std::size_t>(line - lines_.begin());
  if (line == lines_.end()) lines_.push_back({.curve = {.label = std::string(label)}});
  return {.line = number, .x = x, .every_n = every_n};
}

EpochLog& ProgressBoard::log_on(Device device) {
  for (const auto& log : logs_)
    if (log->device() == device) return *log;
  return *logs_.emplace_back(std::make_unique<EpochLog>(device));
}

void ProgressBoard::place(const Point& point) {
  Line& line = lines_[point.line];
  line.sum_x += point.x;
  line.sum_y += point.y;
  if (++line.num_gathered < point.every_n * line.num_merged) return;
  line.curve.x.push_back(line.sum_x / static_cast<double>(line.num_gathered));
  line.curve.y.push_back(line.sum_y / static_cast<double>(line.num_gathered));
  line.num_gathered = 0;
  line.sum_x = line.sum_y = 0;
  if (line.curve.x.size() == kMaxPoints) thin(line);
}

void ProgressBoard::thin(Line& line) {
  for (std::vector<double>* values : {&line.curve.x, &line.curve.y}) {
    for (std::size_t i = 0; i < kMaxPoints / 2; ++i) {
      (*values)[i] = ((*values)[2 * i] + (*values)[2 * i + 1]) / 2;
    }
    values->resize(kMaxPoints / 2);
  }
  line.num_merged *= 2;
}

}  // namespace kindling
