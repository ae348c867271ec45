#pragma once

#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/formats/image.h"

namespace kindling {

// What `kindling blame` found, as texts.
struct BlamePage {
  std::string run{}, step{};
  std::string id_title{};                        // what names the samples: "sample", "file"
  std::vector<std::vector<std::string>> rows{};  // of each sample its name, loss and part of the sum
  std::vector<std::string> labels{};             // of each row; empty: the samples have no class
  std::vector<std::string> notes{};
  std::vector<Image> pictures{};  // of the first rows
};

KINDLING_API std::string html_of(const BlamePage& page);

}  // namespace kindling
