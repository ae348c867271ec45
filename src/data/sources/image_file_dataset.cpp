#include "data/sources/image_file_dataset.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <cstddef>
#include <cstring>
#include <utility>

#include "data/sources/image_resize.h"
#include "kindling/base/error.h"
#include "kindling/formats/image.h"

namespace kindling {
namespace {

// JPEG files are decoded at a reduced size down to this multiple of the wanted size, which leaves the final
// resize enough pixels to average.
constexpr std::int64_t kReducedDecoding = 2;

}  // namespace

std::string image_size_text(const ImageSize& size) {
  return std::to_string(size[0]) + " x " + std::to_string(size[1]);
}

ImageFormat format_like(const std::filesystem::path& file, const std::optional<ImageSize>& size,
                        const std::optional<std::int64_t>& channels) {
  ImageFormat format{.channels = channels.value_or(0), .resizes = size.has_value()};
  if (size) format.size = *size;
  if (size && channels) return format;
  const Image first = read_image(file, {.channels = format.channels});
  format.channels = first.channels;
  if (!size) format.size = {first.height, first.width};
  format.source = file.string();
  return format;
}

ImageSize decode_planes(const std::filesystem::path& file, const ImageFormat& format, std::uint8_t* planes) {
  const auto [height, width] = format.size;
  ImageOptions options{.channels = format.channels};
  if (format.resizes && !format.has_full_size)
    options.wanted_size = {kReducedDecoding * height, kReducedDecoding * width};
  Image image = read_image(file, options);
  const ImageSize in_file{image.height, image.width};
  if (in_file != format.size) {
    if (!format.resizes)
      throw DataError({.place = file.string(),
                       .found = "the image has " + image_size_text(in_file) + " pixels (height x width)",
                       .wanted = image_size_text(format.size) + ", as " + format.source,
                       .remedy = "set data.size to the height and width that all images are resized to"});
    image = resized_image(image, height, width);
  }
  const std::int64_t plane = height * width;
  for (std::int64_t c = 0; c < image.channels; ++c)
    for (std::int64_t i = 0; i < plane; ++i)
      planes[c * plane + i] = image.pixels[static_cast<std::size_t>(i * image.channels + c)];
  return in_file;
}

ImageFileDataset::ImageFileDataset(std::shared_ptr<const ImageFiles> files, std::vector<std::int64_t> samples,
                                   ImageFormat format)
    : files_(std::move(files)), samples_(std::move(samples)), format_(std::move(format)) {}

void ImageFileDataset::gather(const at::Tensor& indices, Batch& batch) const {
  const std::int64_t count = indices.numel(), plane = format_.size[0] * format_.size[1];
  const std::array<std::int64_t, 4> shape{count, format_.channels, format_.size[0], format_.size[1]};
  const at::Tensor& targets = files_->targets;
  std::vector<std::int64_t> label_shape{count};
  if (targets.defined()) label_shape.push_back(targets.size(1));
  if (batch.tensors().size() != 2)
    batch = Batch{at::empty(shape, at::TensorOptions(at::kByte)),
                  at::empty(label_shape, targets.defined() ? targets.scalar_type() : at::kLong)};
  at::Tensor &images = batch.tensors()[0], &labels = batch.tensors()[1];
  if (images.size(0) != count) {
    images.resize_(shape);
    labels.resize_(label_shape);
  }
  auto* const planes = images.mutable_data_ptr<std::uint8_t>();
  auto* const label_bytes = static_cast<std::byte*>(labels.mutable_data_ptr());
  const std::size_t row_bytes =
      targets.defined() ? targets.nbytes() / files_->names.size() : sizeof(std::int64_t);
  const auto* const all_bytes = targets.defined() ? static_cast<const std::byte*>(targets.const_data_ptr())
                                                  : reinterpret_cast<const std::byte*>(files_->labels.data());
  const at::Tensor numbers = indices.contiguous();
  const std::int64_t* const index = numbers.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i) {
    if (index[i] < 0 || index[i] >= size())
      throw DataError({.place = "ImageFolder",
                       .found = "there is no sample " + std::to_string(index[i]),
                       .wanted = "numbers below " + std::to_string(size())});
    const auto sample = static_cast<std::size_t>(samples_[static_cast<std::size_t>(index[i])]);
    decode_planes(files_->path(sample), format_, planes + i * format_.channels * plane);
    std::memcpy(label_bytes + static_cast<std::size_t>(i) * row_bytes, all_bytes + sample * row_bytes,
                row_bytes);
  }
}

at::Tensor ImageFileDataset::labels() const {
  if (files_->targets.defined()) return files_->targets.index_select(0, at::tensor(samples_, at::kLong));
  std::vector<std::int64_t> labels;
  for (const std::int64_t sample : samples_)
    labels.push_back(files_->labels[static_cast<std::size_t>(sample)]);
  return at::tensor(labels, at::kLong);
}

}  // namespace kindling
