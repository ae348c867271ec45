#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/charts/chart.h"

// A page of charts, tables and text in one HTML file. All texts may come from anywhere: the page shows them
// as they are.
namespace kindling {

// The parts of a section.
struct PageCharts {  // side by side where the window is wide enough; with zoom and values under the pointer
  std::vector<Chart> charts{};
};
struct PageFacts {  // names and values in two columns
  std::vector<std::pair<std::string, std::string>> facts{};
};
struct PageTable {  // numbers, after a few columns of text
  std::vector<std::string> titles{};
  std::vector<std::vector<std::string>> rows{};
  std::size_t num_text_columns = 0;
  std::size_t marked_row = SIZE_MAX;  // of `rows`
};
struct PageMatrix {               // numbers on a ground that shows their fraction of their row
  std::string rows{}, columns{};  // what they stand for: "label", "prediction"
  std::vector<std::vector<double>> cells{};
  std::vector<std::string> names{};  // of the rows and of the columns; empty: numbers from 0
};
struct PagePicture {
  std::string title{};
  std::string alt{};          // what it shows, for readers who do not see it
  std::string png{};          // the bytes of the file
  double aspect_ratio = 1;    // width by height, at which it is shown
  std::string low{}, high{};  // the ends of the color scale of heat_map_png(); both empty: none is shown
};
struct PagePictures {  // side by side, with sharp pixels
  std::vector<PagePicture> pictures{};
  bool are_small = false;  // thumbnails, with titles of a few lines
};
struct PageBars {  // fractions of a whole as bars, from 0 to 1
  std::vector<std::pair<std::string, double>> bars{};
};
struct PageNote {  // a paragraph
  std::string text{};
};
struct PageText {  // lines in a font of fixed width; with a summary they are folded behind it
  std::string text{}, summary{};
};
using PagePart =
    std::variant<PageCharts, PageFacts, PageTable, PageMatrix, PagePictures, PageBars, PageNote, PageText>;

struct PageSection {
  std::string title{};
  std::vector<PagePart> parts{};
};

struct HtmlPage {
  enum class Tone { neutral, good, bad };

  std::string title{};
  std::string status{};  // next to the title; empty: none
  Tone tone = Tone::neutral;
  std::string subtitle{};
  std::int64_t refresh_s = 0;  // the page reloads itself; 0: it does not
  // With JavaScript it stops, and says so, once the file is older than max_age_s. Seconds since 1970.
  double written_s = 0;
  double max_age_s = 0;
  std::vector<PageSection> sections{};
  std::string footer{};
};

// Returns a file that needs no other one: no address, no external script or style sheet, light or dark as the
// reader's system is, and readable from 360 pixels of width on. Without JavaScript its charts are drawings.
KINDLING_API std::string to_html(const HtmlPage& page);

}  // namespace kindling
