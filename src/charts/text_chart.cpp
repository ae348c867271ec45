#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "charts/chart_layout.h"
#include "kindling/base/text.h"

namespace kindling {
namespace {

constexpr int kSmallestColumns = 24, kSmallestRows = 4;

// Dots in cells of two by four; each cell is a character of the block U+2800.
class BrailleCanvas {
 public:
  BrailleCanvas(int columns, int rows)
      : columns_(columns),
        rows_(rows),
        cells_(static_cast<std::size_t>(columns) * static_cast<std::size_t>(rows)),
        pens_(cells_.size()) {}

  // Draws the following dots for a curve.
  void choose_pen(std::size_t curve) { pen_ = curve; }

  void set(int x, int y) {  // in dots from the upper left
    static constexpr unsigned kBits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    if (x < 0 || y < 0 || x >= 2 * columns_ || y >= 4 * rows_) return;
    const auto cell = static_cast<std::size_t>(y / 4 * columns_ + x / 2);
    cells_[cell] |= kBits[y % 4][x % 2];
    pens_[cell] = pen_;
  }

  // Convert a fraction of the plot to dots and to cells.
  int dot_x(double at) const { return static_cast<int>(std::lround(at * (2 * columns_ - 1))); }
  int dot_y(double at) const { return static_cast<int>(std::lround((1 - at) * (4 * rows_ - 1))); }

  int column_of(double at) const { return dot_x(at) / 2; }
  int row_of(double at) const { return dot_y(at) / 4; }
  int columns() const { return columns_; }
  int rows() const { return rows_; }

  // With `color`, each cell has the color of the last curve drawn in it.
  std::string row(int number, bool color) const {
    std::string text;
    const char* current = "";
    for (int column = 0; column < columns_; ++column) {
      const auto cell = static_cast<std::size_t>(number * columns_ + column);
      const unsigned dots = cells_[cell];
      const char* const wanted = !color || dots == 0 ? current : kPens[pens_[cell] % std::size(kPens)];
      if (wanted != current) text += current = wanted;
      if (dots == 0)
        text += ' ';
      else
        text += {'\xe2', static_cast<char>(0xa0 | (dots >> 6)), static_cast<char>(0x80 | (dots & 0x3f))};
    }
    while (text.ends_with(' ')) text.pop_back();
    return *current == '\0' ? text : text + kNoPen;
  }

 private:
  // Blue, yellow, green, magenta, cyan, red.
  static constexpr const char* kPens[] = {"\x1b[34m", "\x1b[33m", "\x1b[32m",
                                          "\x1b[35m", "\x1b[36m", "\x1b[31m"};
  static constexpr const char* kNoPen = "\x1b[0m";

  int columns_, rows_;
  std::vector<unsigned> cells_;
  std::vector<std::size_t> pens_;
  std::size_t pen_ = 0;
};

// True if the curve draws the n-th dot along its way.
bool has_ink(std::size_t curve, int n) {
  static constexpr std::string_view kInk[] = {"x", "xxxxxx....", "x...", "xxxxxx..xx.."};
  const std::string_view dash = kInk[curve % std::size(kInk)];
  return dash[static_cast<std::size_t>(n) % dash.size()] == 'x';
}

void draw_segment(BrailleCanvas& canvas, const ChartPoint& from, const ChartPoint& to, std::size_t curve,
                  int& n) {
  const int x0 = canvas.dot_x(from.x), y0 = canvas.dot_y(from.y);
  const int dx = canvas.dot_x(to.x) - x0, dy = canvas.dot_y(to.y) - y0;
  const int steps = std::max(std::abs(dx), std::abs(dy));
  for (int i = 0; i <= steps; ++i) {
    const double share = steps == 0 ? 0 : static_cast<double>(i) / steps;
    if (has_ink(curve, n + i))
      canvas.set(x0 + static_cast<int>(std::lround(share * dx)),
                 y0 + static_cast<int>(std::lround(share * dy)));
  }
  n += steps;
}

// Returns the part of the segment a–b inside the plot (Liang, Barsky 1984).
std::optional<std::pair<ChartPoint, ChartPoint>> clipped(const ChartPoint& a, const ChartPoint& b) {
  const double dx = b.x - a.x, dy = b.y - a.y;
  double from = 0, to = 1;
  for (const auto& [slope, distance] : {std::pair{-dx, a.x}, {dx, 1 - a.x}, {-dy, a.y}, {dy, 1 - a.y}}) {
    if (slope == 0 && distance < 0) return std::nullopt;
    if (slope < 0) from = std::max(from, distance / slope);
    if (slope > 0) to = std::min(to, distance / slope);
  }
  if (from > to) return std::nullopt;
  const auto along = [&](double t) { return t == 1 ? b : ChartPoint{a.x + t * dx, a.y + t * dy}; };
  return std::pair{along(from), along(to)};
}

void draw_curve(BrailleCanvas& canvas, const CurveLayout& layout, std::size_t curve, bool is_scatter) {
  canvas.choose_pen(curve);
  if (is_scatter) {
    for (const ChartPoint& point : layout.points) canvas.set(canvas.dot_x(point.x), canvas.dot_y(point.y));
    return;
  }
  int n = 0;
  for (const auto& line : layout.lines) {
    for (std::size_t i = 1; i < line.size(); ++i) {
      const auto piece = clipped(line[i - 1], line[i]);
      if (piece) draw_segment(canvas, piece->first, piece->second, curve, n);
    }
    if (line.size() > 1) continue;
    const int x = canvas.dot_x(line[0].x) & ~1,
              y = canvas.dot_y(line[0].y);  // a single dot would be overlooked
    for (const int right : {0, 1})
      for (const int down : {0, 1}) canvas.set(x + right, y + down);
  }
}

// Draws crosses in the lowest row.
void draw_gaps(BrailleCanvas& canvas, const CurveLayout& layout, std::size_t curve) {
  canvas.choose_pen(curve);
  const int y = canvas.dot_y(0) - 1;
  for (const double at : layout.gaps) {
    const int x = canvas.dot_x(at);
    for (const int side : {-1, 1})
      for (const int down : {-1, 1}) canvas.set(x + side, y + down);
    canvas.set(x, y);
  }
}

std::string spaces(int count) { return std::string(static_cast<std::size_t>(std::max(count, 0)), ' '); }

int columns_of(std::string_view text) { return static_cast<int>(display_width(text)); }

std::string centered(std::string_view label, int from, int width) {
  const std::string clean = one_line(label);
  return spaces(from + (width - columns_of(clean)) / 2) + clean + '\n';
}

std::string plot_rows(const BrailleCanvas& canvas, const std::vector<ChartTick>& ticks, int margin,
                      bool color) {
  std::string text;
  for (int row = 0; row < canvas.rows(); ++row) {
    const auto tick = std::find_if(ticks.begin(), ticks.end(),
                                   [&](const ChartTick& t) { return canvas.row_of(t.at) == row; });
    const std::string label = tick == ticks.end() ? "" : tick->text;
    text += padded(label, static_cast<std::size_t>(margin), true) + (tick == ticks.end() ? " │" : " ┤");
    text += canvas.row(row, color) + '\n';
  }
  return text;
}

// Draws the lower axis, and below it the labels that fit.
std::string lower_axis(const BrailleCanvas& canvas, const std::vector<ChartTick>& ticks, int margin) {
  std::string labels = spaces(margin + 2);
  std::vector<bool> has_tick(static_cast<std::size_t>(canvas.columns()));
  int end = 0;  // end of the labels so far, in characters
  for (const ChartTick& tick : ticks) {
    const int column = canvas.column_of(tick.at);
    has_tick[static_cast<std::size_t>(column)] = true;
    const int width = columns_of(tick.text);
    const int start = std::clamp(margin + 2 + column - width / 2, 0, margin + 2 + canvas.columns() - width);
    if (end > 0 && start <= end) continue;
    labels.resize(static_cast<std::size_t>(start), ' ');
    labels += tick.text;
    end = start + width;
  }
  std::string axis = spaces(margin) + " └";
  for (const bool tick : has_tick) axis += tick ? "┬" : "─";
  return axis + '\n' + labels + '\n';
}

std::string text_legend(const Chart& chart, int columns, bool color) {
  constexpr int kSample = 6;
  std::string legend;
  int used = columns;  // the first label starts a line
  for (std::size_t i = 0; i < chart.curves.size(); ++i) {
    const std::string label = one_line(chart.curves[i].label);
    if (label.empty()) continue;
    BrailleCanvas sample(kSample, 1);
    sample.choose_pen(i);
    for (int x = 0; x < 2 * kSample; ++x)
      if (has_ink(i, x)) sample.set(x, 1);
    const std::string drawn = sample.row(0, color) + spaces(kSample - columns_of(sample.row(0, false)));
    const int width = kSample + 1 + columns_of(label) + 3;
    const bool is_new_line = used + width > columns;
    if (is_new_line) used = 0;
    legend += (legend.empty() ? "  " : is_new_line ? "\n  " : "   ") + drawn + ' ' + label;
    used += width;
  }
  return legend.empty() ? legend : legend + '\n';
}

}  // namespace

std::string to_text(const Chart& chart, int columns, int rows, bool color) {
  columns = std::max(columns, kSmallestColumns);
  rows = std::max(rows, kSmallestRows);
  const ChartLayout layout = layout_of(chart, std::max(columns / 12, 2), std::max(rows / 3, 2));
  int margin = 0;
  for (const ChartTick& tick : layout.yticks) margin = std::max(margin, columns_of(tick.text));
  const int width = columns - margin - 2;
  BrailleCanvas canvas(width, rows);
  for (std::size_t i = 0; i < layout.curves.size(); ++i)
    draw_curve(canvas, layout.curves[i], i, chart.curves[i].is_scatter);
  for (std::size_t i = 0; i < layout.curves.size(); ++i) draw_gaps(canvas, layout.curves[i], i);

  std::string text;
  if (!chart.title.empty()) text += centered(chart.title, margin + 2, width);
  if (!chart.ylabel.empty()) text += ' ' + one_line(chart.ylabel) + '\n';
  text += plot_rows(canvas, layout.yticks, margin, color) + lower_axis(canvas, layout.xticks, margin);
  if (!chart.xlabel.empty()) text += centered(chart.xlabel, margin + 2, width);
  return text + text_legend(chart, columns, color);
}

}  // namespace kindling
