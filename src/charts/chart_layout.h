#pragma once

#include <string>
#include <vector>

#include "kindling/charts/chart.h"

// Where the parts of a chart stand, for every kind of drawing: in shares of the plot's width and height, (0,
// 0) at the lower left.
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
      lines;                       // may leave the plot; one point alone, in the plot, is a line of one
  std::vector<ChartPoint> points;  // those given that lie in the plot
};

struct ChartLayout {
  std::vector<ChartTick> xticks, yticks;
  std::vector<CurveLayout> curves;  // as in the chart
};

// About `xticks` and `yticks` ticks, at multiples of 1, 2 or 5 times a power of ten. Throws as to_svg().
ChartLayout layout_of(const Chart& chart, int xticks, int yticks);

}  // namespace kindling
