#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/formats/image.h"
#include "support/scratch.h"

namespace kindling {

using Pixels = std::vector<std::uint8_t>;

// Made by make_images.py.
inline const std::filesystem::path kImageFixtures = std::filesystem::path(KINDLING_FIXTURES) / "images";

inline std::string image_fixture(const std::string& name) {
  return read_file(kImageFixtures / name, 100'000);
}

inline std::string image_refusal(const std::string& bytes, const ImageOptions& options = {}) {
  return error_text<DataError>([&] { parse_image(bytes, "x", options); });
}

}  // namespace kindling
