#include "runs/blame_page.h"

#include <cstddef>
#include <utility>

#include "charts/html_page.h"
#include "formats/images/image_codecs.h"

namespace kindling {
namespace {

PagePictures pictures_of(const BlamePage& page) {
  PagePictures part{.are_small = true};
  if (!can_read_png()) return part;
  for (std::size_t row = 0; row < page.pictures.size(); ++row) {
    std::string title = page.id_title + " " + page.rows[row][0] + ": ";
    if (!page.labels.empty()) title += "label " + page.labels[row] + ", ";
    title += "loss " + page.rows[row][1];
    const Image& image = page.pictures[row];
    part.pictures.push_back(
        {.title = title,
         .alt = "Image of " + title,
         .png = encode_png(image, "a picture of the page"),
         .aspect_ratio = static_cast<double>(image.width) / static_cast<double>(image.height)});
  }
  return part;
}

}  // namespace

std::string html_of(const BlamePage& page) {
  PageSection section{.title = "Samples of the step by their parts of its loss"};
  if (PagePictures pictures = pictures_of(page); !pictures.pictures.empty())
    section.parts.push_back(std::move(pictures));
  PageTable table{.titles = {page.id_title, "loss", "of the sum"}, .rows = page.rows, .num_text_columns = 1};
  if (!page.labels.empty()) {
    table.num_text_columns = 2;
    table.titles.insert(table.titles.begin() + 1, "label");
    for (std::size_t i = 0; i < table.rows.size(); ++i)
      table.rows[i].insert(table.rows[i].begin() + 1, page.labels[i]);
  }
  section.parts.push_back(std::move(table));
  for (const std::string& note : page.notes) section.parts.push_back(PageNote{note});
  return to_html({.title = "Blame of " + page.run, .subtitle = page.step, .sections = {std::move(section)}});
}

}  // namespace kindling
