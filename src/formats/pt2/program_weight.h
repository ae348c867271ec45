#pragma once

#include <cstddef>
#include <string>

#include "formats/pt2/exported_program.h"

namespace kindling {

// A weight, a buffer or a constant.
struct ProgramWeight {
  std::string name{};  // "net.1.weight"
  ProgramTensor tensor{};
  bool is_parameter = false;
  std::size_t storage = 0;  // tied weights share one
};

}  // namespace kindling
