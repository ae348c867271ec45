#include "cli/data/image_text.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "kindling/base/text.h"

namespace kindling {
namespace {

constexpr std::int64_t kMostImageColumns = 64, kLeastImageColumns = 16;
constexpr std::int64_t kCellGap = 2;
constexpr std::size_t kLeastCaption = 10;

const std::uint8_t* pixel_at(const Image& image, std::int64_t y, std::int64_t x) {
  return &image.pixels[static_cast<std::size_t>((y * image.width + x) * image.channels)];
}

// "38;2;255;0;0" for a red foreground
std::string color_code(const char* ground, const Image& image, std::int64_t y, std::int64_t x) {
  const std::uint8_t* const pixel = pixel_at(image, y, x);
  std::string code = std::string(ground) + ";2";
  for (std::int64_t c = 0; c < 3; ++c) code += ";" + std::to_string(pixel[image.channels == 3 ? c : 0]);
  return code;
}

// Appends the lines of several images next to each other, each in `width` columns.
void append_images(std::string& text, std::span<const Image> images, std::int64_t width) {
  std::vector<std::vector<std::string>> lines;
  std::size_t num_lines = 0;
  for (const Image& image : images)
    num_lines = std::max(num_lines, lines.emplace_back(half_block_lines(image)).size());
  for (std::size_t line = 0; line < num_lines; ++line) {
    for (std::size_t i = 0; i < images.size(); ++i) {
      const bool has_line = line < lines[i].size();
      if (has_line) text += lines[i][line];
      if (i + 1 < images.size())
        text.append(static_cast<std::size_t>(width + kCellGap - (has_line ? images[i].width : 0)), ' ');
    }
    text += "\n";
  }
}

}  // namespace

std::vector<std::string> half_block_lines(const Image& image) {
  std::vector<std::string> lines;
  for (std::int64_t y = 0; y < image.height; y += 2) {
    std::string& line = lines.emplace_back();
    std::string current;
    for (std::int64_t x = 0; x < image.width; ++x) {
      const bool has_lower = y + 1 < image.height;
      const std::string code =
          color_code("38", image, y, x) + ";" + (has_lower ? color_code("48", image, y + 1, x) : "49");
      if (code != current) line += "\x1b[" + code + "m";
      line += "▀";
      current = code;
    }
    line += "\x1b[0m";
  }
  return lines;
}

Image fitted_image(const Image& image, std::int64_t max_width) {
  const std::int64_t side = std::max(image.width, image.height);
  const std::int64_t limit = std::clamp<std::int64_t>(max_width, 1, kMostImageColumns);
  const std::int64_t factor = std::max<std::int64_t>(std::min(kLeastImageColumns, limit) / side, 1);
  const std::int64_t longest = std::min(side * factor, limit);
  Image fitted{.width = std::max<std::int64_t>(image.width * longest / side, 1),
               .height = std::max<std::int64_t>(image.height * longest / side, 1),
               .channels = image.channels,
               .pixels = {}};
  for (std::int64_t y = 0; y < fitted.height; ++y)
    for (std::int64_t x = 0; x < fitted.width; ++x)
      for (std::int64_t c = 0; c < image.channels; ++c) {
        const std::int64_t top = y * image.height / fitted.height, left = x * image.width / fitted.width;
        const std::int64_t bottom = std::max((y + 1) * image.height / fitted.height, top + 1);
        const std::int64_t right = std::max((x + 1) * image.width / fitted.width, left + 1);
        std::int64_t sum = 0;
        for (std::int64_t i = top; i < bottom; ++i)
          for (std::int64_t j = left; j < right; ++j) sum += pixel_at(image, i, j)[c];
        const std::int64_t count = (bottom - top) * (right - left);
        fitted.pixels.push_back(static_cast<std::uint8_t>((sum + count / 2) / count));
      }
  return fitted;
}

std::string samples_text(const ImageSamples& samples, std::int64_t columns) {
  std::vector<Image> before, after;
  std::int64_t width = static_cast<std::int64_t>(kLeastCaption);
  for (const auto& [from, to] : {std::pair{&samples.before, &before}, std::pair{&samples.after, &after}})
    for (const Image& image : *from)
      width = std::max(width, to->emplace_back(fitted_image(image, columns)).width);
  const auto per_line =
      static_cast<std::size_t>(std::max<std::int64_t>((columns + kCellGap) / (width + kCellGap), 1));
  std::string text;
  for (std::size_t begin = 0; begin < before.size(); begin += per_line) {
    const std::size_t count = std::min(per_line, before.size() - begin);
    if (begin > 0) text += "\n";
    for (std::size_t i = begin; i < begin + count; ++i) {
      const std::string caption = shortened(samples.captions[i], static_cast<std::size_t>(width));
      text += i + 1 < begin + count ? padded(caption, static_cast<std::size_t>(width + kCellGap)) : caption;
    }
    text += "\n";
    append_images(text, std::span(before).subspan(begin, count), width);
    if (!after.empty()) append_images(text, std::span(after).subspan(begin, count), width);
  }
  return text;
}

}  // namespace kindling
