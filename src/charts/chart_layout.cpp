#include "charts/chart_layout.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "kindling/base/error.h"
#include "kindling/base/number_text.h"

namespace kindling {
namespace {

constexpr double kNowhere = std::numeric_limits<double>::quiet_NaN();
constexpr double kLargestDrawn = 1e300;  // keeps differences finite
constexpr double kLargestPlace = 1e4;    // in plot sizes: beyond it, a line's direction no longer matters
constexpr double kMargin = 0.05;         // of a span that depends on the curves, on each side
constexpr double kSmallestSpan = 1e-9;   // relative to the values: narrower axes would show rounding errors

using Limits = std::array<double, 2>;

// Returns `value` on the linear scale of the axis; NaN if it has no position there.
double on_scale(AxisScale scale, double value) {
  if (!(std::abs(value) <= kLargestDrawn)) return kNowhere;
  if (scale == AxisScale::linear) return value;
  return value > 0 ? std::log10(value) : kNowhere;
}

double fraction_of(const Limits& limits, double place) {
  return std::clamp((place - limits[0]) / (limits[1] - limits[0]), -kLargestPlace, kLargestPlace);
}

// Returns the user's limits, on the scale of the axis.
Limits checked_limits(const char* name, const Limits& given, AxisScale scale) {
  const Limits limits{on_scale(scale, given[0]), on_scale(scale, given[1])};
  if (limits[0] < limits[1]) return limits;  // false for NaN
  throw Error({.place = std::string("chart ") + name,
               .found = '[' + number_text(given[0]) + ", " + number_text(given[1]) + ']',
               .wanted = scale == AxisScale::log ? "0 < low < high on a log axis"
                                                 : "finite numbers with low < high"});
}

// Returns limits that show all `points`, which are on the scale of their axis.
Limits limits_around(const std::vector<std::vector<ChartPoint>>& curves, double ChartPoint::*coordinate) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const auto& points : curves) {
    for (const ChartPoint& point : points) {
      if (std::isnan(point.x)) continue;
      low = std::min(low, point.*coordinate);
      high = std::max(high, point.*coordinate);
    }
  }
  if (low > high) return {0, 1};  // nothing to show
  const double size = std::max(std::abs(low), std::abs(high));
  if (high - low <= size * kSmallestSpan) {
    const double half = size > 0 ? size * 0.1 : 0.5;
    return {low - half, high + half};
  }
  const double margin = kMargin * (high - low);
  return {low - margin, high + margin};
}

// Returns the points of a curve on the scales of the axes; NaN in both coordinates for missing points.
std::vector<ChartPoint> points_on_scales(const Chart& chart, const Curve& curve) {
  if (curve.x.size() != curve.y.size())
    throw Error({.place = "chart, curve '" + curve.label + "'",
                 .found = std::to_string(curve.x.size()) + " x and " + std::to_string(curve.y.size()) + " y",
                 .wanted = "the same number of both"});
  std::vector<ChartPoint> points;
  points.reserve(curve.x.size());
  for (std::size_t i = 0; i < curve.x.size(); ++i) {
    const ChartPoint point{on_scale(chart.xscale, curve.x[i]), on_scale(chart.yscale, curve.y[i])};
    const bool has_place = !std::isnan(point.x) && !std::isnan(point.y);
    points.push_back(has_place ? point : ChartPoint{kNowhere, kNowhere});
  }
  return points;
}

// Returns the smallest of 1, 2, 5 times a power of ten that is at least `step`.
double round_step(double step) {
  const double power = std::pow(10, std::floor(std::log10(step)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (step <= factor * power * (1 + 1e-9)) return factor * power;
  return 10 * power;
}

// Uses as many decimals as distinguish neighbouring ticks.
std::string tick_text(double value, double step, double largest) {
  const double decimals = std::max(0.0, -std::floor(std::log10(step) + 1e-9));
  if (decimals <= 5 && largest < 1e6) return fixed_text(value, static_cast<int>(decimals));
  const double digits = std::floor(std::log10(largest)) - std::floor(std::log10(step) + 1e-9) + 1;
  return short_text(value, static_cast<int>(std::clamp(digits, 1.0, 15.0)));
}

// Returns the multiples of a round step (at least two) between `low` and `high`, with their texts.
std::vector<std::pair<double, std::string>> round_values(double low, double high, int wanted) {
  double step = round_step((high - low) / wanted);
  if (std::floor(high / step) - std::ceil(low / step) < 1)
    step = round_step(step / 3);  // one tick shows no scale
  const double first = std::ceil(low / step - 1e-9), last = std::floor(high / step + 1e-9);
  std::vector<std::pair<double, std::string>> values;
  const auto count = static_cast<int>(std::min(last - first + 1, 100.0));
  for (int i = 0; i < count; ++i) {
    const double value = (first + i) * step + 0.0;  // + 0.0: no "-0"
    values.emplace_back(value, tick_text(value, step, std::max(std::abs(low), std::abs(high))));
  }
  return values;
}

std::vector<ChartTick> linear_ticks(const Limits& limits, int wanted) {
  std::vector<ChartTick> ticks;
  for (auto& [value, text] : round_values(limits[0], limits[1], wanted))
    ticks.push_back({fraction_of(limits, value), std::move(text)});
  return ticks;
}

// Returns powers of ten; if fewer than two are visible also their multiples by 2 and 5, else round numbers.
std::vector<ChartTick> log_ticks(const Limits& limits, int wanted) {
  const double first = std::ceil(limits[0] - 1e-9), last = std::floor(limits[1] + 1e-9);
  const double stride = std::max(1.0, std::ceil((last - first + 1) / (wanted + 1)));
  std::vector<ChartTick> ticks;
  const auto add = [&](double value) {
    const double at = fraction_of(limits, std::log10(value));
    if (at >= -1e-9 && at <= 1 + 1e-9) ticks.push_back({at, short_text(value, 1)});
  };
  if (last > first) {
    for (double power = std::ceil(first / stride) * stride; power <= last; power += stride)
      add(std::pow(10, power));
    return ticks;
  }
  for (double power = first - 1; power <= last + 1; ++power)
    for (const double factor : {1.0, 2.0, 5.0}) add(factor * std::pow(10, power));
  if (ticks.size() >= 2) return ticks;
  ticks.clear();
  for (auto& [value, text] : round_values(std::pow(10, limits[0]), std::pow(10, limits[1]), wanted))
    ticks.push_back({fraction_of(limits, std::log10(value)), std::move(text)});
  return ticks;
}

bool is_in_plot(const ChartPoint& point) {
  return point.x >= 0 && point.x <= 1 && point.y >= 0 && point.y <= 1;
}

// Splits at missing points.
std::vector<std::vector<ChartPoint>> lines_through(const std::vector<ChartPoint>& points) {
  std::vector<std::vector<ChartPoint>> lines(1);
  for (const ChartPoint& point : points) {
    if (!std::isnan(point.x)) {
      lines.back().push_back(point);
    } else if (!lines.back().empty()) {
      lines.emplace_back();
    }
  }
  std::erase_if(lines, [](const auto& line) {
    return line.empty() || (line.size() == 1 && !is_in_plot(line.front()));
  });
  return lines;
}

// Removes the ticks between whole numbers, and the decimals of the others.
void keep_whole_ticks(std::vector<ChartTick>& ticks) {
  const auto is_between = [](const ChartTick& tick) {
    const std::size_t point = tick.text.find('.');
    return point != std::string::npos && tick.text.find_first_not_of('0', point + 1) != std::string::npos;
  };
  std::erase_if(ticks, is_between);
  for (ChartTick& tick : ticks) tick.text.erase(std::min(tick.text.find('.'), tick.text.size()));
}

// Returns where in the plot the values of y are not finite.
std::vector<double> gaps_of(const Chart& chart, const Curve& curve, const Limits& xlimits) {
  std::vector<double> gaps;
  for (std::size_t i = 0; i < curve.x.size(); ++i) {
    const double x = on_scale(chart.xscale, curve.x[i]);
    if (std::isfinite(curve.y[i]) || std::isnan(x)) continue;
    const double at = fraction_of(xlimits, x);
    if (at >= 0 && at <= 1) gaps.push_back(at);
  }
  return gaps;
}

// Points without a y still need room for their marks.
Limits with_gaps(const Chart& chart, Limits limits) {
  bool has_points = false;
  for (const Curve& curve : chart.curves)
    for (std::size_t i = 0; i < curve.x.size(); ++i) {
      if (std::isfinite(curve.y[i])) has_points = true;
    }
  for (const Curve& curve : chart.curves)
    for (std::size_t i = 0; i < curve.x.size(); ++i) {
      const double x = on_scale(chart.xscale, curve.x[i]);
      if (std::isfinite(curve.y[i]) || std::isnan(x)) continue;
      const double room = kMargin * (limits[1] - limits[0]);
      if (!std::exchange(has_points, true)) limits = {x - 1, x + 1};
      limits = {std::min(limits[0], x - room), std::max(limits[1], x + room)};
    }
  return limits;
}

}  // namespace

ChartLayout layout_of(const Chart& chart, int xticks, int yticks) {
  std::vector<std::vector<ChartPoint>> curves;
  for (const Curve& curve : chart.curves) curves.push_back(points_on_scales(chart, curve));
  Limits xlimits =
      chart.xlim ? checked_limits("xlim", *chart.xlim, chart.xscale) : limits_around(curves, &ChartPoint::x);
  if (chart.marks_gaps && !chart.xlim) xlimits = with_gaps(chart, xlimits);
  const Limits ylimits =
      chart.ylim ? checked_limits("ylim", *chart.ylim, chart.yscale) : limits_around(curves, &ChartPoint::y);
  ChartLayout layout;
  // At most one tick for each whole number between the limits.
  if (chart.has_whole_x && chart.xscale == AxisScale::linear)
    xticks = static_cast<int>(std::clamp(xlimits[1] - xlimits[0], 1.0, static_cast<double>(xticks)));
  layout.xticks = (chart.xscale == AxisScale::log ? log_ticks : linear_ticks)(xlimits, xticks);
  if (chart.has_whole_x) keep_whole_ticks(layout.xticks);
  layout.yticks = (chart.yscale == AxisScale::log ? log_ticks : linear_ticks)(ylimits, yticks);
  for (auto& points : curves) {
    for (ChartPoint& point : points)
      if (!std::isnan(point.x)) point = {fraction_of(xlimits, point.x), fraction_of(ylimits, point.y)};
    CurveLayout curve{.lines = lines_through(points), .points = {}};
    std::copy_if(points.begin(), points.end(), std::back_inserter(curve.points), is_in_plot);
    layout.curves.push_back(std::move(curve));
  }
  for (std::size_t i = 0; chart.marks_gaps && i < layout.curves.size(); ++i)
    layout.curves[i].gaps = gaps_of(chart, chart.curves[i], xlimits);
  return layout;
}

}  // namespace kindling
