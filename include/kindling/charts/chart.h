#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "kindling/base/export.h"

// Curves as a picture for a browser and as characters for a terminal.
namespace kindling {

enum class AxisScale { linear, log };  // log: base 10; values <= 0 are left out

// Points joined in their order. A NaN, an infinity and, on a log axis, a value <= 0 break the line.
struct Curve {
  std::string label{};
  std::vector<double> x{}, y{};  // of equal length
};

// What to draw, in what frame.
struct Chart {
  std::string title{}, xlabel{}, ylabel{};              // UTF-8; empty: not shown
  std::optional<std::array<double, 2>> xlim{}, ylim{};  // {low, high}; absent: what the curves need
  AxisScale xscale = AxisScale::linear, yscale = AxisScale::linear;
  std::vector<Curve> curves{};
};

// Both throw Error for a curve whose x and y differ in length and for limits that are not finite, not in
// order or, on a log axis, not above 0. A chart without a point to show has its axes all the same.

// A whole SVG file, ended by a newline: white background, axes with round ticks, a legend below; no script,
// no style sheet, nothing to load.
KINDLING_API std::string to_svg(const Chart& chart);

// Lines ended by newlines, none wider than `columns` (at least 24; less is taken as 24) as long as the labels
// fit, drawn in braille dots on `rows` lines (at least 4) with axes and labels around them. Curves differ by
// their dashes: whole, dashed, dotted, dash-dotted, and again. No escape sequences.
KINDLING_API std::string to_text(const Chart& chart, int columns = 72, int rows = 16);

}  // namespace kindling
