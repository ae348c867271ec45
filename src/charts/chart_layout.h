#pragma once

#include <string>
#include <vector>

#include "kindling/charts/chart.h"

// The positions of a chart's parts, for every output format, as fractions of the plot's width and height,
// with (0, 0) at the lower left.
namespace kindling {

struct ChartPoint {
  double x = 0, y = 0;
};

struct ChartTick {
  double at = 0;  // 0 to 1 along the axis
  std::string text;
};

struct CurveLayout {
  std::vector<std::vector<ChartPoint>>
      lines;                       // may leave the plot; a single point in the plot is a line of length one
  std::vector<ChartPoint> points;  // the given points within the plot
  std::vector<double> gaps{};      // along the x axis: where y is not finite, if the chart marks gaps
};

struct ChartLayout {
  std::vector<ChartTick> xticks, yticks;
  std::vector<CurveLayout> curves;  // in the order of the chart
};

// Computes about `xticks` and `yticks` ticks, at multiples of 1, 2 or 5 times a power of ten. Throws as
// to_svg().
ChartLayout layout_of(const Chart& chart, int xticks, int yticks);

}  // namespace kindling
