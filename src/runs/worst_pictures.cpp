#include "runs/worst_pictures.h"

#include <cstddef>
#include <optional>

#include "kindling/base/error.h"
#include "kindling/formats/npy.h"
#include "runs/run_files.h"

namespace kindling {
namespace {

constexpr std::size_t kMaxPictureBytes = std::size_t{1} << 26;

// std::nullopt for a file of other contents.
std::optional<NpyArray> bytes_of_four_dimensions(const std::filesystem::path& file) try {
  const auto bytes = small_file(file, kMaxPictureBytes);
  if (!bytes) return std::nullopt;
  NpyArray array = parse_npy(*bytes, file.string());
  if (array.type != TensorType::uint8 || array.shape.size() != 4 || array.is_column_major ||
      array.bytes.empty())
    return std::nullopt;
  return array;
} catch (const Error&) {
  return std::nullopt;
}

// `frame`: without pixels.
std::vector<Image> images_of(const NpyArray& array, const Image& frame) {
  std::vector<Image> images;
  const auto size = static_cast<std::size_t>(frame.height * frame.width * frame.channels);
  for (std::size_t at = 0; at < array.bytes.size(); at += size) {
    const auto begin = array.bytes.begin() + static_cast<std::ptrdiff_t>(at);
    images.push_back(frame);
    images.back().pixels.assign(begin, begin + static_cast<std::ptrdiff_t>(size));
  }
  return images;
}

}  // namespace

std::vector<Image> read_worst_pictures(const std::filesystem::path& file) {
  const auto array = bytes_of_four_dimensions(file);
  if (!array || (array->shape[3] != 1 && array->shape[3] != 3)) return {};
  return images_of(
      *array,
      {.width = array->shape[2], .height = array->shape[1], .channels = array->shape[3], .pixels = {}});
}

std::vector<Image> read_worst_masks(const std::filesystem::path& file) {
  const auto array = bytes_of_four_dimensions(file);
  if (!array || array->shape[1] != 2) return {};
  return images_of(*array,
                   {.width = array->shape[3], .height = array->shape[2], .channels = 1, .pixels = {}});
}

}  // namespace kindling
