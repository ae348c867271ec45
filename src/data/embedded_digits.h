#pragma once

#include <string_view>

namespace kindling {

// The gz IDX files of src/data/digits, made part of the library by cmake/EmbedFile.cmake.
extern const std::string_view kDigitsImages;
extern const std::string_view kDigitsLabels;

}  // namespace kindling
