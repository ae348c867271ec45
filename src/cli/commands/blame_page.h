#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace kindling {

// What `kindling blame` found, as texts.
struct BlamePage {
  std::string run{}, step{};
  std::string id_title{};                        // what names the samples: "sample", "file"
  std::vector<std::vector<std::string>> rows{};  // of each sample its name, loss and part of the sum
  std::vector<std::string> labels{};             // of each row; empty: the samples have no class
  std::vector<std::string> notes{};
  at::Tensor pictures{};  // of the first rows, see sample_pictures(); undefined: none
};

std::string html_of(const BlamePage& page);

}  // namespace kindling
