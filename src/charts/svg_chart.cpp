#include <algorithm>
#include <array>
#include <functional>
#include <string_view>

#include "charts/chart_layout.h"
#include "kindling/base/number_text.h"
#include "kindling/base/text.h"

namespace kindling {
namespace {

// In pixels of the viewBox. The legend's rows extend below; the rest has fixed positions.
constexpr double kSvgWidth = 640, kSvgHeight = 360;
constexpr double kLeft = 80, kRight = 620, kTop = 40, kBottom = 300;
constexpr double kLegendRow = 20, kLegendSample = 28, kCharacter = 7;
constexpr std::size_t kMostMarkers = 40;  // curves with more points are drawn as lines only

// The colours of Okabe and Ito (2008), distinguishable for colour-blind readers; the light ones are darker
// for a white background.
constexpr std::array<std::string_view, 6> kColors{"#0072b2", "#d55e00", "#007a5a",
                                                  "#b3478f", "#a87400", "#444444"};
constexpr std::array<std::string_view, 4> kDashes{"", "6 3", "1.5 2.5", "6 3 1.5 3"};

std::string xml_text(std::string_view label) {
  std::string text;
  for (const char c : one_line(label)) {
    if (c == '&')
      text += "&amp;";
    else if (c == '<')
      text += "&lt;";
    else if (c == '>')
      text += "&gt;";
    else if (c == '"')
      text += "&quot;";
    else
      text += c;
  }
  return text;
}

double pixel_x(double at) { return kLeft + at * (kRight - kLeft); }
double pixel_y(double at) { return kBottom - at * (kBottom - kTop); }

// A tenth of a pixel is finer than any screen.
std::string pixels(double value) { return fixed_text(value, 1); }
std::string pair_text(double x, double y) { return pixels(x) + ' ' + pixels(y); }

std::string svg_text(double x, double y, std::string_view anchor, std::string_view text,
                     std::string_view more = "") {
  std::string element = "<text x=\"" + pixels(x) + "\" y=\"" + pixels(y) + "\" text-anchor=\"";
  element.append(anchor).append("\"").append(more).append(">");
  return element + xml_text(text) + "</text>\n";
}

std::string svg_line(double x1, double y1, double x2, double y2) {
  return "<path d=\"M" + pair_text(x1, y1) + " L" + pair_text(x2, y2) + "\"/>\n";
}

std::string svg_axes(const Chart& chart, const ChartLayout& layout) {
  std::string grid, texts;
  for (const ChartTick& tick : layout.xticks) {
    grid += svg_line(pixel_x(tick.at), kTop, pixel_x(tick.at), kBottom + 4);
    texts += svg_text(pixel_x(tick.at), kBottom + 18, "middle", tick.text);
  }
  for (const ChartTick& tick : layout.yticks) {
    grid += svg_line(kLeft - 4, pixel_y(tick.at), kRight, pixel_y(tick.at));
    texts += svg_text(kLeft - 8, pixel_y(tick.at) + 4, "end", tick.text);
  }
  const double middle = (kTop + kBottom) / 2;
  if (!chart.title.empty())
    texts += svg_text((kLeft + kRight) / 2, 24, "middle", chart.title, " font-size=\"15\"");
  if (!chart.xlabel.empty()) texts += svg_text((kLeft + kRight) / 2, kBottom + 38, "middle", chart.xlabel);
  if (!chart.ylabel.empty())
    texts +=
        svg_text(18, middle, "middle", chart.ylabel, " transform=\"rotate(-90 18 " + pixels(middle) + ")\"");
  return "<g fill=\"none\" stroke=\"#dddddd\">\n" + grid + "</g>\n<path d=\"M" + pair_text(kLeft, kTop) +
         " L" + pair_text(kLeft, kBottom) + " L" + pair_text(kRight, kBottom) +
         "\" fill=\"none\" stroke=\"#222222\"/>\n" + texts;
}

// Skips points at the same tenth of a pixel as the previous one, which keeps files of long runs small.
std::string path_through(const std::vector<ChartPoint>& line) {
  std::string path, last;
  for (const ChartPoint& point : line) {
    std::string here = pair_text(pixel_x(point.x), pixel_y(point.y));
    if (here == last) continue;
    path += (path.empty() ? "M" : " L") + here;
    last = std::move(here);
  }
  return path;
}

std::string stroke_of(std::size_t curve) {
  std::string style = " stroke=\"" + std::string(kColors[curve % kColors.size()]) + "\"";
  const std::string_view dash = kDashes[curve % kDashes.size()];
  if (!dash.empty()) style.append(" stroke-dasharray=\"").append(dash).append("\"");
  return style;
}

std::string svg_line_of(const CurveLayout& curve, std::size_t number) {
  std::string path;
  for (const auto& line : curve.lines) {
    if (line.size() > 1) path += (path.empty() ? "" : " ") + path_through(line);
  }
  if (path.empty()) return "";
  return "<path d=\"" + path + "\" fill=\"none\" stroke-width=\"1.8\"" + stroke_of(number) + "/>\n";
}

// Draws all points of a short curve; for a long one only isolated points.
std::string svg_markers(const CurveLayout& curve, std::size_t number) {
  std::string markers;
  const auto mark = [&](const ChartPoint& point) {
    markers += "<circle cx=\"" + pixels(pixel_x(point.x)) + "\" cy=\"" + pixels(pixel_y(point.y)) +
               "\" r=\"2.5\"/>\n";
  };
  if (curve.points.size() <= kMostMarkers) {
    std::for_each(curve.points.begin(), curve.points.end(), mark);
  } else {
    for (const auto& line : curve.lines) {
      if (line.size() == 1) mark(line.front());
    }
  }
  if (markers.empty()) return "";
  return "<g fill=\"" + std::string(kColors[number % kColors.size()]) + "\">\n" + markers + "</g>\n";
}

// Clips the lines at the plot. The clip's name is derived from the curves, because a page may contain several
// charts.
std::string svg_curves(const std::vector<CurveLayout>& curves) {
  std::string lines, markers;
  for (std::size_t i = 0; i < curves.size(); ++i) {
    lines += svg_line_of(curves[i], i);
    markers += svg_markers(curves[i], i);
  }
  const std::string name = "plot-" + std::to_string(std::hash<std::string>()(lines));
  return "<clipPath id=\"" + name + "\"><rect x=\"" + pixels(kLeft - 1) + "\" y=\"" + pixels(kTop - 1) +
         "\" width=\"" + pixels(kRight - kLeft + 2) + "\" height=\"" + pixels(kBottom - kTop + 2) +
         "\"/></clipPath>\n<g clip-path=\"url(#" + name + ")\">\n" + lines + "</g>\n" + markers;
}

// Draws samples and labels in rows from the left; `height` is the start of the next row.
std::string svg_legend(const Chart& chart, double& height) {
  std::string legend;
  double x = kSvgWidth;  // the first label starts a row
  for (std::size_t i = 0; i < chart.curves.size(); ++i) {
    if (chart.curves[i].label.empty()) continue;
    const double width = kLegendSample + 6 +
                         kCharacter * static_cast<double>(display_width(one_line(chart.curves[i].label))) +
                         18;
    if (x + width > kSvgWidth) {
      x = kLeft;
      height += kLegendRow;
    }
    const double y = height - kLegendRow / 2;
    legend += "<path d=\"M" + pair_text(x, y - 4) + " L" + pair_text(x + kLegendSample, y - 4) +
              "\" fill=\"none\" stroke-width=\"1.8\"" + stroke_of(i) + "/>\n";
    legend += svg_text(x + kLegendSample + 6, y, "start", chart.curves[i].label);
    x += width;
  }
  return legend;
}

}  // namespace

std::string to_svg(const Chart& chart) {
  const ChartLayout layout = layout_of(chart, 6, 5);
  double height = kSvgHeight - 10;
  const std::string legend = svg_legend(chart, height);
  const std::string size = fixed_text(kSvgWidth, 0) + "\" height=\"" + fixed_text(height, 0);
  std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + size + "\" viewBox=\"0 0 " +
                    fixed_text(kSvgWidth, 0) + ' ' + fixed_text(height, 0) +
                    "\" font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"#222222\">\n";
  svg += "<rect width=\"" + size + "\" fill=\"#ffffff\"/>\n";
  return svg + svg_axes(chart, layout) + svg_curves(layout.curves) + legend + "</svg>\n";
}

}  // namespace kindling
