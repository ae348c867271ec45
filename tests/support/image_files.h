#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "support/png_bytes.h"

namespace kindling {

// The value of a pixel in the files of write_png().
inline std::uint8_t png_value(std::int64_t y, std::int64_t x, std::int64_t channel, std::int64_t shift = 0) {
  return static_cast<std::uint8_t>((x * 37 + y * 61 + channel * 17 + shift) % 256);
}

// Writes a PNG file of 1 or 3 channels, and its directory.
inline void write_png(const std::filesystem::path& file, std::int64_t height, std::int64_t width,
                      std::int64_t channels = 1, std::int64_t shift = 0) {
  std::string rows;
  for (std::int64_t y = 0; y < height; ++y) {
    rows += '\0';
    for (std::int64_t x = 0; x < width; ++x)
      for (std::int64_t c = 0; c < channels; ++c) rows += static_cast<char>(png_value(y, x, c, shift));
  }
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << png_bytes({.width = static_cast<std::uint32_t>(width),
                                                      .height = static_cast<std::uint32_t>(height),
                                                      .color = channels == 1 ? 0 : 2,
                                                      .rows = rows});
}

// Writes `per_class` images of 8 x 8 pixels for each class: a bright upper half in "day", a bright lower half
// in "night", brighter with the number of the file.
inline void write_day_and_night(const std::filesystem::path& root, int per_class) {
  for (const bool is_day : {true, false})
    for (int i = 0; i < per_class; ++i) {
      std::string rows;
      for (int y = 0; y < 8; ++y)
        rows += '\0' + std::string(8, static_cast<char>((y < 4) == is_day ? 150 + 3 * i : 10 + i));
      const auto folder = root / (is_day ? "day" : "night");
      std::filesystem::create_directories(folder);
      std::ofstream(folder / (std::to_string(100 + i) + ".png"), std::ios::binary)
          << png_bytes({.width = 8, .height = 8, .rows = rows});
    }
}

}  // namespace kindling
