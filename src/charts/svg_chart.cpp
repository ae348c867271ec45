#include <algorithm>
#include <array>
#include <functional>
#include <string_view>
#include <utility>

#include "charts/chart_layout.h"
#include "charts/markup.h"
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

double pixel_x(double at) { return kLeft + at * (kRight - kLeft); }
double pixel_y(double at) { return kBottom - at * (kBottom - kTop); }

// A tenth of a pixel is finer than any screen.
std::string pixels(double value) { return fixed_text(value, 1); }
std::string pair_text(double x, double y) { return pixels(x) + ' ' + pixels(y); }

std::string svg_text(double x, double y, std::string_view anchor, std::string_view text,
                     std::string_view more = "") {
  std::string element = "<text x=\"" + pixels(x) + "\" y=\"" + pixels(y) + "\" text-anchor=\"";
  element.append(anchor).append("\"").append(more).append(">");
  return element + markup_text(text) + "</text>\n";
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

std::string stroke_of(std::size_t curve, bool is_background) {
  std::string style = " stroke=\"" + std::string(kColors[curve % kColors.size()]) + "\"";
  const std::string_view dash = kDashes[curve % kDashes.size()];
  style += is_background ? " stroke-width=\"1\" stroke-opacity=\"0.5\"" : " stroke-width=\"1.8\"";
  if (!dash.empty() && !is_background) style.append(" stroke-dasharray=\"").append(dash).append("\"");
  return style;
}

std::string svg_line_of(const CurveLayout& curve, std::size_t number, bool is_background) {
  std::string path;
  for (const auto& line : curve.lines) {
    if (line.size() > 1) path += (path.empty() ? "" : " ") + path_through(line);
  }
  if (path.empty()) return "";
  return "<path d=\"" + path + "\" fill=\"none\"" + stroke_of(number, is_background) + "/>\n";
}

// Draws all points of a short curve; for a long one only isolated points.
std::string svg_markers(const CurveLayout& curve, std::size_t number, bool is_scatter) {
  std::string markers;
  const auto mark = [&](const ChartPoint& point) {
    markers += "<circle cx=\"" + pixels(pixel_x(point.x)) + "\" cy=\"" + pixels(pixel_y(point.y)) +
               "\" r=\"2.5\"/>\n";
  };
  if (is_scatter || curve.points.size() <= kMostMarkers) {
    std::for_each(curve.points.begin(), curve.points.end(), mark);
  } else {
    for (const auto& line : curve.lines) {
      if (line.size() == 1) mark(line.front());
    }
  }
  if (markers.empty()) return "";
  return "<g fill=\"" + std::string(kColors[number % kColors.size()]) + "\">\n" + markers + "</g>\n";
}

// Draws crosses on the lower axis, at most one in four pixels.
std::string svg_gaps(const CurveLayout& curve, std::size_t number) {
  constexpr double kArm = 3, kDistance = 4, kAbove = 7;
  std::string path;
  double last = -kDistance;
  for (const double at : curve.gaps) {
    const double x = pixel_x(at), y = kBottom - kAbove;
    if (x - last < kDistance) continue;
    last = x;
    path += "M" + pair_text(x - kArm, y - kArm) + " L" + pair_text(x + kArm, y + kArm) + " M" +
            pair_text(x - kArm, y + kArm) + " L" + pair_text(x + kArm, y - kArm);
  }
  if (path.empty()) return "";
  return "<path d=\"" + path + "\" fill=\"none\" stroke-width=\"1.5\" stroke=\"" +
         std::string(kColors[number % kColors.size()]) + "\"/>\n";
}

// Clips the lines at the plot. The clip's name is derived from the curves, because a page may contain several
// charts.
std::string svg_curves(const Chart& chart, const std::vector<CurveLayout>& curves) {
  std::string behind, lines, markers;
  for (std::size_t i = 0; i < curves.size(); ++i) {
    const auto& [is_background, is_scatter] =
        std::pair(chart.curves[i].is_background, chart.curves[i].is_scatter);
    if (!is_scatter) (is_background ? behind : lines) += svg_line_of(curves[i], i, is_background);
    markers += svg_markers(curves[i], i, is_scatter) + svg_gaps(curves[i], i);
  }
  lines.insert(0, behind);
  const std::string name = "plot-" + std::to_string(std::hash<std::string>()(lines));
  return "<clipPath id=\"" + name + "\"><rect x=\"" + pixels(kLeft - 1) + "\" y=\"" + pixels(kTop - 1) +
         "\" width=\"" + pixels(kRight - kLeft + 2) + "\" height=\"" + pixels(kBottom - kTop + 2) +
         "\"/></clipPath>\n<g clip-path=\"url(#" + name + ")\">\n" + lines + "</g>\n" + markers;
}

// Places the entries of a legend in rows from the left.
class SvgLegend {
 public:
  explicit SvgLegend(double top) : height_(top) {}

  void add(const std::string& sample, std::string_view label) {
    const double width =
        kLegendSample + 6 + kCharacter * static_cast<double>(display_width(one_line(label))) + 18;
    if (x_ + width > kSvgWidth) {
      x_ = kLeft;
      height_ += kLegendRow;
    }
    const double y = height_ - kLegendRow / 2;
    text_ += "<path d=\"M" + pair_text(x_, y - 4) + " L" + pair_text(x_ + kLegendSample, y - 4) +
             "\" fill=\"none\"" + sample + "/>\n";
    text_ += svg_text(x_ + kLegendSample + 6, y, "start", label);
    x_ += width;
  }
  void add_note(std::string_view note) {
    height_ += kLegendRow;
    x_ = kSvgWidth;
    text_ += svg_text(kLeft, height_ - kLegendRow / 2, "start", note);
  }

  const std::string& text() const { return text_; }
  double height() const { return height_; }  // the lower end

 private:
  double height_;
  double x_ = kSvgWidth;  // the first label starts a row
  std::string text_;
};

SvgLegend svg_legend(const Chart& chart, const ChartLayout& layout) {
  SvgLegend legend(kSvgHeight - 10);
  for (std::size_t i = 0; i < chart.curves.size(); ++i)
    if (!chart.curves[i].label.empty())
      legend.add(stroke_of(i, chart.curves[i].is_background), chart.curves[i].label);
  const bool has_gaps =
      std::ranges::any_of(layout.curves, [](const CurveLayout& curve) { return !curve.gaps.empty(); });
  if (has_gaps) legend.add_note("× not finite (NaN or infinity)");
  return legend;
}

// Returns the elements of a chart, and its height.
std::pair<std::string, double> svg_elements(const Chart& chart) {
  const ChartLayout layout = layout_of(chart, 6, 5);
  const SvgLegend legend = svg_legend(chart, layout);
  return {svg_axes(chart, layout) + svg_curves(chart, layout.curves) + legend.text(), legend.height()};
}

std::string svg_file(double width, double height, const std::string& elements) {
  const std::string size = fixed_text(width, 0) + "\" height=\"" + fixed_text(height, 0);
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + size + "\" viewBox=\"0 0 " +
         fixed_text(width, 0) + ' ' + fixed_text(height, 0) +
         "\" font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"#222222\">\n<rect width=\"" +
         size + "\" fill=\"#ffffff\"/>\n" + elements + "</svg>\n";
}

}  // namespace

std::string to_svg(const Chart& chart) {
  const auto [elements, height] = svg_elements(chart);
  return svg_file(kSvgWidth, height, elements);
}

std::string to_svg_grid(std::span<const Chart> charts, int columns) {
  const std::size_t num_columns = std::min(static_cast<std::size_t>(std::max(columns, 1)), charts.size());
  std::string all;
  double top = 0, row_height = 0;
  for (std::size_t i = 0; i < charts.size(); ++i) {
    if (i % num_columns == 0) top += std::exchange(row_height, 0);
    const auto [elements, height] = svg_elements(charts[i]);
    const double left = kSvgWidth * static_cast<double>(i % num_columns);
    all += "<g transform=\"translate(" + pair_text(left, top) + ")\">\n" + elements + "</g>\n";
    row_height = std::max(row_height, height);
  }
  return svg_file(kSvgWidth * static_cast<double>(std::max<std::size_t>(num_columns, 1)),
                  std::max(top + row_height, 1.0), all);
}

}  // namespace kindling
