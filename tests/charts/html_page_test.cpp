#include "charts/html_page.h"

#include <gtest/gtest.h>

#include <cmath>
#include <regex>

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
                              PageMatrix{bad, bad, {{1}}}, PageBars{{{bad, 0.5}}}, PageNote{bad},
                              PageText{bad + "\n" + bad, bad}}}},
      .footer = bad};
  const std::string html = to_html(page);
  EXPECT_FALSE(has_piece(html, "<script>alert"));
  EXPECT_FALSE(has_piece(html, "<img"));
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

TEST(HtmlPage, MarksARowAndAlignsColumnsOfText) {
  const std::string html = to_html(page_with(PageTable{
      .titles = {"layer", "parameters"}, .rows = {{"net", "7"}}, .num_text_columns = 1, .marked_row = 0}));
  EXPECT_TRUE(has_piece(html, "<tr class=\"marked\"><td class=\"text\">net</td><td>7</td></tr>"));
}

}  // namespace
}  // namespace kindling
