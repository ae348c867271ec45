#include "charts/html_page.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <regex>

#include "charts/heat_map.h"
#include "kindling/formats/image.h"

namespace kindling {
namespace {

constexpr const char* kHostile = "</script><script>alert(1)</script><img src=x onerror=alert(2)> \"&'\x1b";

bool has_piece(const std::string& page, const std::string& piece) {
  return page.find(piece) != std::string::npos;
}

HtmlPage page_with(PagePart part) {
  return {.title = "run", .sections = {{.title = "part", .parts = {std::move(part)}}}};
}

TEST(HtmlPage, EscapesAllTexts) {
  const std::string bad = kHostile;
  const Chart chart{.title = bad, .xlabel = bad, .curves = {{.label = bad, .x = {1}, .y = {2}}}};
  const HtmlPage page{
      .title = bad,
      .status = bad,
      .subtitle = bad,
      .sections = {{.title = bad,
                    .parts = {PageCharts{{chart}}, PageFacts{{{bad, bad}}}, PageTable{{bad}, {{bad}}},
                              PageMatrix{bad, bad, {{1}}},
                              PagePictures{{{.title = bad, .alt = bad, .png = bad, .low = bad, .high = bad}}},
                              PageBars{{{bad, 0.5}}}, PageNote{bad}, PageText{bad + "\n" + bad, bad}}}},
      .footer = bad};
  const std::string html = to_html(page);
  EXPECT_FALSE(has_piece(html, "<script>alert"));
  EXPECT_FALSE(has_piece(html, "<img src"));
  EXPECT_FALSE(has_piece(html, "\x1b"));
  EXPECT_TRUE(has_piece(html, "&lt;/script&gt;&lt;script&gt;alert(1)"));
  EXPECT_TRUE(has_piece(html, "\\u003c/script>\\u003cscript>alert(1)")) << "in the data of the script";
  const std::regex script_ends("</script>");
  EXPECT_EQ(std::distance(std::sregex_iterator(html.begin(), html.end(), script_ends), {}), 2);
}

TEST(HtmlPage, RefersToNothingOutside) {
  const std::string html = to_html(page_with(PageCharts{{{.curves = {{.x = {1, 2}, .y = {1, 2}}}}}}));
  EXPECT_FALSE(has_piece(html, "http:") || has_piece(html, "https:") || has_piece(html, "//www"));
  EXPECT_FALSE(std::regex_search(html, std::regex("(href|src)\\s*=")));
  EXPECT_FALSE(has_piece(html, "@import") || has_piece(html, "url(http"));
}

TEST(HtmlPage, ReloadsItselfOnRequestOnly) {
  HtmlPage page{.title = "run"};
  EXPECT_FALSE(has_piece(to_html(page), "http-equiv=\"refresh\""));
  EXPECT_TRUE(has_piece(to_html(page), "<header>"));
  page.refresh_s = 5;
  page.written_s = 1.8e9;
  page.max_age_s = 650;
  EXPECT_TRUE(has_piece(to_html(page), "<noscript><meta http-equiv=\"refresh\" content=\"5\"></noscript>"));
  EXPECT_TRUE(has_piece(to_html(page),
                        "<header data-refresh=\"5\" data-written=\"1800000000\" data-max-age=\"650\">"));
}

TEST(HtmlPage, WritesNumbersThatAreNotFiniteAsNull) {
  const Curve curve{.label = "loss", .x = {1, 2, 1234567}, .y = {0.5, std::nan(""), 0.123456789}};
  const std::string html = to_html(page_with(PageCharts{{{.curves = {curve}}}}));
  EXPECT_TRUE(has_piece(html, "\"x\":[1,2,1234567],\"y\":[0.5,null,0.123457]"));
}

TEST(HtmlPage, ShadesAMatrixByFractionsOfItsRows) {
  const std::string html = to_html(page_with(PageMatrix{"label", "prediction", {{3, 1}, {0, 5}}}));
  EXPECT_TRUE(has_piece(html, "<td style=\"--f:0.750\" class=\"full\">3</td><td style=\"--f:0.250\">1</td>"));
  EXPECT_TRUE(has_piece(html, "class=\"none\">·</td><td style=\"--f:1.000\" class=\"full\">5</td>"));
}

TEST(HtmlPage, NamesTheRowsAndColumnsOfAMatrix) {
  HtmlPage page;
  page.sections = {{.parts = {PageMatrix{.cells = {{1, 0}, {0, 2}}, .names = {"<a>"}}}}};
  const std::string html = to_html(page);
  EXPECT_NE(html.find("<td></td><th>&lt;a&gt;</th><th>1</th>"), std::string::npos);
  EXPECT_NE(html.find("<tr><th>&lt;a&gt;</th><td"), std::string::npos);
}

// The texts of RFC 4648, section 10, and bytes above 127.
TEST(HtmlPage, HasPicturesInItself) {
  for (const auto& [bytes, text] : {std::pair<std::string, std::string>{"", ""},
                                    {"f", "Zg=="},
                                    {"fo", "Zm8="},
                                    {"foo", "Zm9v"},
                                    {"foob", "Zm9vYg=="},
                                    {"fooba", "Zm9vYmE="},
                                    {"foobar", "Zm9vYmFy"},
                                    {std::string("\xfb\xff\x00", 3), "+/8A"}}) {
    const std::string html = to_html(
        page_with(PagePictures{{{.title = "a map", .alt = "of errors", .png = bytes, .aspect_ratio = 2}}}));
    EXPECT_TRUE(has_piece(html,
                          "<figcaption>a map</figcaption><img alt=\"of errors\" style=\"aspect-ratio:2.000\" "
                          "src=\"data:image/png;base64," +
                              text + "\">"))
        << html;
    EXPECT_TRUE(has_piece(
        html, "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\""));
    EXPECT_FALSE(has_piece(html, "class=\"scale\""));
  }
  EXPECT_FALSE(has_piece(to_html(page_with(PageNote{"text"})), "img-src"));
}

TEST(HtmlPage, ShowsTheColorScaleOfAPicture) {
  const auto picture = [](double aspect_ratio) {
    return to_html(page_with(PagePictures{{{.aspect_ratio = aspect_ratio, .low = "0.5", .high = "7"}}}));
  };
  EXPECT_TRUE(
      has_piece(picture(1), "<span>0.5</span><i style=\"background:linear-gradient(to right,rgb(68 1 84),"));
  EXPECT_TRUE(has_piece(picture(1), ",rgb(253 231 37))\"></i><span>7</span></div>"));
  EXPECT_TRUE(has_piece(picture(500), "aspect-ratio:12.000"));
  EXPECT_TRUE(has_piece(picture(0.001), "aspect-ratio:0.600"));
}

TEST(HeatMap, HasAColorForEachNumberAndForMissingOnes) {
  if (!can_read_png()) GTEST_SKIP() << "built without libpng";
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(),
                  kInf = std::numeric_limits<float>::infinity();
  const auto colors_of = [](const HeatMap& map) {
    const Image image = parse_image(heat_map_png(map), "map", {.channels = 3});
    EXPECT_EQ(image.width, static_cast<std::int64_t>(map.width));
    EXPECT_EQ(image.height, static_cast<std::int64_t>(map.height));
    std::vector<std::array<int, 3>> colors;
    for (std::size_t i = 0; i < image.pixels.size(); i += 3)
      colors.push_back({image.pixels[i], image.pixels[i + 1], image.pixels[i + 2]});
    return colors;
  };
  using Colors = std::vector<std::array<int, 3>>;
  EXPECT_EQ(
      colors_of({.height = 2, .width = 3, .values = {2, kNan, 6, kInf, -9, 99}, .low = 2, .high = 6}),
      (Colors{{68, 1, 84}, {176, 176, 176}, {253, 231, 37}, {220, 20, 60}, {68, 1, 84}, {253, 231, 37}}));
  // The middle is shade 127 of 0 … 253, almost the middle color.
  EXPECT_EQ(colors_of({.height = 1, .width = 1, .values = {4}, .low = 2, .high = 6}),
            (Colors{{33, 145, 140}}));
  EXPECT_EQ(colors_of({.height = 1, .width = 2, .values = {3, kNan}, .low = 3, .high = 3}),
            (Colors{{68, 1, 84}, {176, 176, 176}}));
  EXPECT_EQ(colors_of({.height = 1, .width = 1, .values = {kNan}, .low = kNan, .high = kNan}),
            (Colors{{176, 176, 176}}));
}

TEST(HtmlPage, MarksARowAndAlignsColumnsOfText) {
  const std::string html = to_html(page_with(PageTable{
      .titles = {"layer", "parameters"}, .rows = {{"net", "7"}}, .num_text_columns = 1, .marked_row = 0}));
  EXPECT_TRUE(has_piece(html, "<tr class=\"marked\"><td class=\"text\">net</td><td>7</td></tr>"));
}

}  // namespace
}  // namespace kindling
