#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/sources/image_files.h"
#include "kindling/base/export.h"
#include "kindling/data/dataset.h"

namespace kindling {

// What all images of a data set become.
struct ImageFormat {
  std::int64_t channels = 0;
  std::array<std::int64_t, 2> size{0, 0};  // height, width
  bool resizes = false;                    // otherwise, another size is an error
  std::string source{};                    // the file whose size counts, in messages
  bool has_full_size = false;  // JPEG files are not decoded at a reduced size before they are resized
};

using ImageSize = std::array<std::int64_t, 2>;  // height, width

// "3 x 4"
KINDLING_API std::string image_size_text(const ImageSize& size);

// Returns the format for `size` and `channels`; absent ones are those of the file.
ImageFormat format_like(const std::filesystem::path& file, const std::optional<ImageSize>& size,
                        const std::optional<std::int64_t>& channels);

// Decodes a file into planes [channels, height, width]. Returns the size that it was resized from. Throws
// DataError.
ImageSize decode_planes(const std::filesystem::path& file, const ImageFormat& format, std::uint8_t* planes);

// Some of the files, decoded when they are gathered: {uint8 [batch, channels, height, width], labels}. Labels
// are int64 [batch], or rows of ImageFiles::targets.
class ImageFileDataset : public Dataset {
 public:
  ImageFileDataset(std::shared_ptr<const ImageFiles> files, std::vector<std::int64_t> samples,
                   ImageFormat format);

  std::int64_t size() const override { return static_cast<std::int64_t>(samples_.size()); }
  void gather(const at::Tensor& indices, Batch& batch) const override;
  bool is_thread_safe() const override { return true; }
  // Returns the labels of all samples, without decoding a file.
  at::Tensor labels() const;

 private:
  std::shared_ptr<const ImageFiles> files_;
  std::vector<std::int64_t> samples_;  // indices of files
  ImageFormat format_;
};

}  // namespace kindling
