#include "runs/worst_pictures.h"

#include <cstddef>

#include "kindling/base/error.h"
#include "kindling/formats/npy.h"
#include "runs/run_files.h"

namespace kindling {
namespace {

constexpr std::size_t kMaxPictureBytes = std::size_t{1} << 26;

}  // namespace

std::vector<Image> read_worst_pictures(const std::filesystem::path& file) try {
  const auto bytes = small_file(file, kMaxPictureBytes);
  if (!bytes) return {};
  const NpyArray array = parse_npy(*bytes, file.string());
  if (array.type != TensorType::uint8 || array.shape.size() != 4 || array.is_column_major ||
      (array.shape[3] != 1 && array.shape[3] != 3) || array.bytes.empty())
    return {};
  std::vector<Image> pictures;
  const std::size_t size = array.bytes.size() / static_cast<std::size_t>(array.shape[0]);
  for (std::size_t at = 0; at < array.bytes.size(); at += size) {
    const auto begin = array.bytes.begin() + static_cast<std::ptrdiff_t>(at);
    pictures.push_back({.width = array.shape[2],
                        .height = array.shape[1],
                        .channels = array.shape[3],
                        .pixels = {begin, begin + static_cast<std::ptrdiff_t>(size)}});
  }
  return pictures;
} catch (const Error&) {
  return {};
}

}  // namespace kindling
