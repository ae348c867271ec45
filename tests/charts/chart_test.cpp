#include "kindling/charts/chart.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <regex>

#include "charts/chart_layout.h"
#include "kindling/base/error.h"
#include "kindling/base/text.h"

namespace kindling {
namespace {

const double kNaN = std::numeric_limits<double>::quiet_NaN();

// Checks that tags nest and close, attributes are quoted, and `&` starts an XML entity: the first
// requirements of a parser.
testing::AssertionResult is_well_formed(const std::string& xml) {
  static const std::regex tag(R"re(<(/?)([a-zA-Z]+)((?: [a-zA-Z-]+="[^"<>]*")*)(/?)>)re");
  static const std::regex bare_ampersand("&(?!(amp|lt|gt|quot);)");
  if (std::regex_search(xml, bare_ampersand)) return testing::AssertionFailure() << "a bare & in " << xml;
  std::vector<std::string> open;
  std::string rest = xml;
  for (std::smatch match; std::regex_search(rest, match, tag); rest = match.suffix()) {
    if (match.prefix().str().find_first_of("<>") != std::string::npos) break;
    if (match[1].length() == 0 && match[4].length() == 0) open.push_back(match[2]);
    if (match[1].length() == 0) continue;
    if (open.empty() || open.back() != match[2])
      return testing::AssertionFailure() << "unexpected " << match[0];
    open.pop_back();
  }
  if (!open.empty()) return testing::AssertionFailure() << "<" << open.back() << "> stays open";
  if (rest.find_first_of("<>") != std::string::npos) return testing::AssertionFailure() << "no tag: " << rest;
  return testing::AssertionSuccess();
}

bool has_part(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::vector<std::string> texts_of(const std::vector<ChartTick>& ticks) {
  std::vector<std::string> texts;
  for (const ChartTick& tick : ticks) texts.push_back(tick.text);
  return texts;
}

Chart chart_of(std::vector<double> x, std::vector<double> y) {
  return {.curves = {{.label = "loss", .x = std::move(x), .y = std::move(y)}}};
}

std::vector<std::string> ticks_of(double low, double high, AxisScale scale = AxisScale::linear) {
  return texts_of(layout_of({.xlim = std::array{low, high}, .xscale = scale}, 5, 5).xticks);
}

TEST(ChartTicks, AreRoundNumbersWithAsManyDecimalsAsTheyNeed) {
  EXPECT_EQ(ticks_of(0, 10), (std::vector<std::string>{"0", "2", "4", "6", "8", "10"}));
  EXPECT_EQ(ticks_of(-0.13, 1.1), (std::vector<std::string>{"0.0", "0.5", "1.0"}));
  EXPECT_EQ(ticks_of(0.0071, 0.0079), (std::vector<std::string>{"0.0072", "0.0074", "0.0076", "0.0078"}));
  EXPECT_EQ(ticks_of(-1e7, 1e7), (std::vector<std::string>{"-1e7", "-5e6", "0", "5e6", "1e7"}));
  EXPECT_EQ(ticks_of(0, 3e-7), (std::vector<std::string>{"0", "1e-7", "2e-7", "3e-7"}));
}

TEST(ChartTicks, AreDecadesOnALogAxis) {
  EXPECT_EQ(ticks_of(0.5, 2000, AxisScale::log), (std::vector<std::string>{"1", "10", "100", "1000"}));
  EXPECT_EQ(ticks_of(1e-12, 1e12, AxisScale::log),
            (std::vector<std::string>{"1e-10", "1e-5", "1", "100000", "1e10"}));
  EXPECT_EQ(ticks_of(3, 40, AxisScale::log), (std::vector<std::string>{"5", "10", "20"}));
  EXPECT_EQ(ticks_of(1.1, 1.4, AxisScale::log), (std::vector<std::string>{"1.1", "1.2", "1.3", "1.4"}));
}

TEST(ChartTicks, AreAtLeastTwoAndFinite) {
  EXPECT_EQ(ticks_of(6.3, 7.7), (std::vector<std::string>{"6.5", "7.0", "7.5"}));
  EXPECT_LT(ticks_of(1e16, 1e16 + 4).size(), 102U);
  EXPECT_LT(ticks_of(-1e300, 1e300).size(), 10U);
}

TEST(SvgChart, MapsPointsToThePlot) {
  Chart chart = chart_of({0, 10}, {0, 1});
  chart.xlim = {0, 10};
  chart.ylim = {0, 1};
  EXPECT_TRUE(has_part(to_svg(chart), "d=\"M80.0 300.0 L620.0 40.0\" fill")) << to_svg(chart);
}

TEST(SvgChart, ClipsLinesAtTheLimits) {
  Chart chart = chart_of({-10, 5, 10}, {0.5, 0.5, 2.5});
  chart.xlim = {0, 10};
  chart.ylim = {0, 1.5};  // reached at x = 7.5
  const std::string svg = to_svg(chart);
  EXPECT_TRUE(has_part(svg, "><rect x=\"79.0\" y=\"39.0\" width=\"542.0\" height=\"262.0\"/></clipPath>"))
      << svg;
  EXPECT_TRUE(std::regex_search(
      svg, std::regex("<clipPath id=\"(plot-[0-9]+)\">.*</clipPath>\n<g clip-path=\"url\\(#\\1\\)\">\n"
                      "<path d=\"M-460.0 213.3 L350.0 213.3 L620.0 -133.3\" fill=\"none\"[^>]*>\n</g>")))
      << svg;
  EXPECT_TRUE(has_part(svg, "cx=\"350.0\"")) << "the only point inside";
  EXPECT_EQ(svg.find("<circle"), svg.rfind("<circle"));
}

TEST(SvgChart, NamesTheClipOfEachChartDifferently) {
  const auto clip_of = [](const Chart& chart) {
    const std::string svg = to_svg(chart);
    return svg.substr(svg.find("url("), 30);
  };
  EXPECT_NE(clip_of(chart_of({0, 1}, {0, 1})), clip_of(chart_of({0, 1, 2}, {0, 1, 1})));
}

TEST(SvgChart, DrawsDecadesAtEqualDistances) {
  Chart chart = chart_of({1, 100, 10000}, {1, 1, 1});
  chart.xlim = {1, 10000};
  chart.ylim = {0, 2};
  chart.xscale = AxisScale::log;
  EXPECT_TRUE(has_part(to_svg(chart), "d=\"M80.0 170.0 L350.0 170.0 L620.0 170.0\"")) << to_svg(chart);
}

TEST(SvgChart, LeavesGapsForMissingNumbers) {
  Chart chart =
      chart_of({0, 1, 2, 3, 4, 5, 6}, {1, 1, kNaN, 1, 1, std::numeric_limits<double>::infinity(), 1});
  chart.xlim = {0, 6};
  chart.ylim = {0, 2};
  EXPECT_TRUE(has_part(to_svg(chart), "d=\"M80.0 170.0 L170.0 170.0 M350.0 170.0 L440.0 170.0\""))
      << to_svg(chart);
  chart.yscale = AxisScale::log;
  chart.ylim = {0.1, 10};
  chart.curves[0].y = {1, 1, 0, 1, 1, -3, 1};
  EXPECT_TRUE(has_part(to_svg(chart), "d=\"M80.0 170.0 L170.0 170.0 M350.0 170.0 L440.0 170.0\""))
      << to_svg(chart);
}

TEST(SvgChart, EscapesLabels) {
  Chart chart = chart_of({0, 1}, {0, 1});
  chart.title = "a < b && \"c\" > d";
  chart.xlabel = "\x1b[31m\x01 red";
  chart.ylabel = "\xff\xfe bad, gut: \xc3\xbc";
  chart.curves[0].label = "</text><script>";
  const std::string svg = to_svg(chart);
  EXPECT_TRUE(is_well_formed(svg));
  EXPECT_TRUE(has_part(svg, ">a &lt; b &amp;&amp; &quot;c&quot; &gt; d</text>"));
  EXPECT_TRUE(has_part(svg, "> [31m  red</text>"));
  EXPECT_TRUE(has_part(svg, ">\xef\xbf\xbd\xef\xbf\xbd bad, gut: \xc3\xbc</text>"));
  EXPECT_TRUE(has_part(svg, ">&lt;/text&gt;&lt;script&gt;</text>"));
}

TEST(SvgChart, IsSelfContainedWithABackground) {
  std::string svg = to_svg(chart_of({0, 1}, {0, 1}));
  const std::string xmlns = " xmlns=\"http://www.w3.org/2000/svg\"";
  ASSERT_TRUE(svg.starts_with("<svg" + xmlns));
  svg.erase(4, xmlns.size());
  EXPECT_FALSE(has_part(svg, "http") || has_part(svg, "href") || has_part(svg, "script"));
  EXPECT_EQ(svg.find("url("), svg.find("url(#plot-"));
  EXPECT_EQ(svg.find("url("), svg.rfind("url("));
  EXPECT_TRUE(has_part(svg, "<rect width=\"640\" height=\"370\" fill=\"#ffffff\"/>")) << svg;
}

TEST(SvgChart, DrawsLittleData) {
  for (const Chart& chart :
       {Chart{}, chart_of({}, {}), chart_of({1}, {kNaN}), chart_of({3}, {7}), chart_of({0, 1, 2}, {5, 5, 5}),
        chart_of({0, 1}, {0, 0}), chart_of({0, 1}, {-1e300, 1e300}), chart_of({0, 1}, {1e-300, 2e-300})}) {
    const std::string svg = to_svg(chart), text = to_text(chart);
    EXPECT_TRUE(is_well_formed(svg));
    EXPECT_FALSE(has_part(svg, "nan") || has_part(svg, "inf")) << svg;
    EXPECT_FALSE(has_part(text, "nan") || has_part(text, "inf")) << text;
  }
  // A single point and a constant are in the middle.
  EXPECT_TRUE(has_part(to_svg(chart_of({3}, {7})), "<circle cx=\"350.0\" cy=\"170.0\""))
      << to_svg(chart_of({3}, {7}));
  EXPECT_TRUE(has_part(to_svg(chart_of({0, 1}, {5, 5})), " 170.0\" fill"));
}

TEST(SvgChart, StaysSmallForALongRun) {
  Chart chart = chart_of({}, {});
  for (int i = 0; i < 200000; ++i) {
    chart.curves[0].x.push_back(i);
    chart.curves[0].y.push_back(1);
  }
  EXPECT_LT(to_svg(chart).size(), 120'000U)
      << "5400 tenths of a pixel, 16 bytes each at the most, and the frame";
}

TEST(SvgChart, StartsANewRowForALongLegend) {
  Chart chart;
  chart.curves = {{.label = std::string(40, 'a')}, {.label = std::string(40, 'b')}, {.label = ""}};
  EXPECT_TRUE(has_part(to_svg(chart), "height=\"390\""))
      << "two rows for two long labels, none for an empty one";
}

TEST(Chart, RefusesInvalidCurvesAndLimits) {
  EXPECT_THROW(to_svg(chart_of({0, 1}, {0})), Error);
  const double infinity = std::numeric_limits<double>::infinity();
  for (const std::array<double, 2>& limits :
       {std::array{1.0, 1.0}, {2.0, 1.0}, {0.0, infinity}, {kNaN, 1.0}}) {
    EXPECT_THROW(to_svg({.xlim = limits}), Error);
    EXPECT_THROW(to_text({.ylim = limits}), Error);
  }
  EXPECT_THROW(to_svg({.ylim = std::array{0.0, 1.0}, .yscale = AxisScale::log}), Error);
}

TEST(TextChart, DrawsCurvesAxesAndLegend) {
  Chart chart = chart_of({0, 10}, {1, 0});
  chart.title = "fit";
  chart.xlabel = "epoch";
  chart.ylabel = "y";
  chart.xlim = {0, 10};
  chart.ylim = {0, 1};
  EXPECT_EQ(to_text(chart, 24, 4), R"(             fit
 y
1.0 ┤⠉⠒⠤⢄⡀
    │    ⠈⠉⠒⠤⢄⡀
0.5 ┤         ⠈⠑⠒⠤⣀⡀
0.0 ┤              ⠈⠑⠒⠤⣀
    └┬────────┬────────┬
     0        5       10
            epoch
  ⠒⠒⠒⠒⠒⠒ loss
)") << to_text(chart, 24, 4);
}

TEST(TextChart, ClipsLinesAtTheLimits) {
  Chart chart = chart_of({0, 5, 10}, {0.5, 1e9, 0.5});  // leaves the plot at once, comes back at the end
  chart.xlim = {0, 10};
  chart.ylim = {0, 1};
  EXPECT_EQ(to_text(chart, 24, 4), R"(1.0 ┤⡇                 ⢸
    │⡇                 ⢸
0.5 ┤⠁                 ⠈
0.0 ┤
    └┬────────┬────────┬
     0        5       10
  ⠒⠒⠒⠒⠒⠒ loss
)") << to_text(chart, 24, 4);
}

TEST(TextChart, DistinguishesCurvesByTheirDashes) {
  Chart chart;
  for (const char* label : {"a", "b", "c", "d"}) chart.curves.push_back({.label = label, .x = {}, .y = {}});
  EXPECT_TRUE(to_text(chart).ends_with("  ⠒⠒⠒⠒⠒⠒ a   ⠒⠒⠒  ⠒ b   ⠂ ⠂ ⠂  c   ⠒⠒⠒ ⠒  d\n")) << to_text(chart);
}

TEST(TextChart, KeepsItsSizeWithoutEscapeSequences) {
  Chart chart = chart_of({0, 1000}, {-123.5, 1e9});
  chart.title = "\x1b[2J";
  for (const int columns : {24, 72, 200}) {
    std::string text = to_text(chart, columns, 10);
    EXPECT_FALSE(has_part(text, "\x1b"));
    for (std::size_t end = 0; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1))
      EXPECT_LE(display_width(text.substr(0, end)), static_cast<std::size_t>(columns)) << text;
  }
}

TEST(SvgChart, MarksValuesThatAreNotFinite) {
  Chart chart = chart_of({0, 1, 2, 3}, {1, kNaN, kNaN, 1});
  EXPECT_FALSE(has_part(to_svg(chart), "not finite"));
  chart.xlim = {0, 2};
  chart.ylim = {0, 1};
  chart.marks_gaps = true;
  const std::string svg = to_svg(chart);
  EXPECT_TRUE(has_part(svg, "d=\"M347.0 290.0 L353.0 296.0 M347.0 296.0 L353.0 290.0M617.0 290.0")) << svg;
  EXPECT_TRUE(has_part(svg, "× not finite (NaN or infinity)</text>"));
  EXPECT_TRUE(is_well_formed(svg));
}

TEST(SvgChart, ShowsMarksOfACurveWithoutAnyNumber) {
  Chart chart = chart_of({1, 2, 3}, {kNaN, kNaN, kNaN});
  chart.marks_gaps = true;
  EXPECT_EQ(layout_of(chart, 5, 5).curves[0].gaps.size(), 3U);
  EXPECT_TRUE(is_well_formed(to_svg(chart)));
}

TEST(SvgChart, DrawsBackgroundCurvesFirstAndThin) {
  Chart chart{.curves = {{.label = "epoch", .x = {0, 1}, .y = {0, 1}},
                         {.label = "step", .x = {0, 1}, .y = {1, 0}, .is_background = true}}};
  const std::string svg = to_svg(chart);
  const std::size_t thin = svg.find("stroke-width=\"1\""), thick = svg.find("stroke-width=\"1.8\"");
  ASSERT_NE(thin, std::string::npos);
  EXPECT_LT(thin, thick);
}

TEST(SvgGrid, PlacesChartsInRows) {
  const std::vector<Chart> charts(3, chart_of({0, 1}, {0, 1}));
  const std::string svg = to_svg_grid(charts, 2);
  EXPECT_TRUE(is_well_formed(svg));
  EXPECT_TRUE(has_part(svg, "viewBox=\"0 0 1280 740\"")) << svg;
  EXPECT_TRUE(has_part(svg, "translate(0.0 0.0)") && has_part(svg, "translate(640.0 0.0)"));
  EXPECT_TRUE(has_part(svg, "translate(0.0 370.0)"));
  EXPECT_TRUE(has_part(to_svg_grid(charts), "viewBox=\"0 0 640 1110\""));
  EXPECT_TRUE(is_well_formed(to_svg_grid({}, 2)));
}

TEST(ChartTicks, AreWholeNumbersOnRequest) {
  const auto ticks = [](std::vector<double> x) {
    Chart chart = chart_of(x, std::vector<double>(x.size(), 1));
    chart.has_whole_x = true;
    return texts_of(layout_of(chart, 6, 5).xticks);
  };
  EXPECT_EQ(ticks({1}), (std::vector<std::string>{"1"}));
  EXPECT_EQ(ticks({1, 2}), (std::vector<std::string>{"1", "2"}));
  EXPECT_EQ(ticks({1, 2, 3}), (std::vector<std::string>{"1", "2", "3"}));
  EXPECT_EQ(ticks({0, 100}), (std::vector<std::string>{"0", "20", "40", "60", "80", "100"}));
}

TEST(TextChart, ColorsCurvesOnRequest) {
  Chart chart{.curves = {{.label = "a", .x = {0, 1}, .y = {0, 0}}, {.label = "b", .x = {0, 1}, .y = {1, 1}}}};
  const std::string plain = to_text(chart), colored = to_text(chart, 72, 16, true);
  EXPECT_FALSE(has_part(plain, "\x1b"));
  EXPECT_TRUE(has_part(colored, "\x1b[34m⠒⠒⠒⠒⠒⠒\x1b[0m a")) << colored;
  EXPECT_TRUE(has_part(colored, "\x1b[33m")) << colored;
  EXPECT_EQ(std::regex_replace(colored, std::regex("\x1b\\[[0-9]+m"), ""), plain);
}

TEST(TextChart, MarksValuesThatAreNotFinite) {
  Chart chart = chart_of({0, 1, 2}, {1, kNaN, 1});
  const std::string without = to_text(chart);
  chart.marks_gaps = true;
  EXPECT_NE(to_text(chart), without);
}

}  // namespace
}  // namespace kindling
