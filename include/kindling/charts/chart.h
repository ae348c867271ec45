#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kindling/base/export.h"

// Draws curves as an SVG plot for a browser and as characters for a terminal.
namespace kindling {

enum class AxisScale { linear, log };  // log: base 10; values <= 0 are skipped

// Points joined in their order, which with is_scatter is that of x. A NaN, an infinity and, on a log axis, a
// value <= 0 break the line.
struct Curve {
  std::string label{};
  std::vector<double> x{}, y{};  // of equal length
  bool is_background = false;    // drawn thin, below the other curves; for values that scatter
  bool is_scatter = false;       // drawn as points that are not joined
};

// A plot: curves, labels and axes.
struct Chart {
  std::string title{}, xlabel{}, ylabel{};              // UTF-8; empty: not shown
  std::optional<std::array<double, 2>> xlim{}, ylim{};  // {low, high}; absent: fitted to the curves
  AxisScale xscale = AxisScale::linear, yscale = AxisScale::linear;
  std::vector<Curve> curves{};
  bool has_whole_x = false;  // ticks of the x axis only at whole numbers
  bool marks_gaps = false;   // a cross on the lower axis for each y that is NaN or infinite
};

// Both throw Error for a curve whose x and y differ in length, and for limits that are not finite, not in
// order or, on a log axis, not above 0. A chart without points still has its axes.

// Returns a complete SVG file that ends with a newline: white background, axes with round ticks, a legend
// below; no script, no style sheet, no external resources.
KINDLING_API std::string to_svg(const Chart& chart);

// Returns such a file with several charts in rows of `columns` charts (at least 1).
KINDLING_API std::string to_svg_grid(std::span<const Chart> charts, int columns = 1);

// Returns lines that end with newlines, drawn in braille dots on `rows` lines (at least 4) with axes and
// labels around them. No line is wider than `columns` (at least 24; less counts as 24) if the labels fit.
// Curves differ by their dashes: solid, dashed, dotted, dash-dotted, and again. With `color` they also differ
// by one of six colors, for which the text has escape sequences; without it there are none.
KINDLING_API std::string to_text(const Chart& chart, int columns = 72, int rows = 16, bool color = false);

}  // namespace kindling
