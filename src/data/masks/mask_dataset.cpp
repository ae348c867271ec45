#include "data/masks/mask_dataset.h"

#include <ATen/ops/empty.h>

#include <array>
#include <cstddef>
#include <string>
#include <utility>

#include "kindling/base/error.h"
#include "kindling/formats/image.h"

namespace kindling {

MaskDataset::MaskDataset(std::shared_ptr<const MaskPairs> pairs, std::shared_ptr<const MaskValues> values,
                         std::vector<std::int64_t> samples, ImageFormat format)
    : pairs_(std::move(pairs)),
      values_(std::move(values)),
      samples_(std::move(samples)),
      format_(std::move(format)) {}

void MaskDataset::gather(const at::Tensor& indices, Batch& batch) const {
  const std::int64_t count = indices.numel();
  const auto [height, width] = format_.size;
  const bool has_masks = !pairs_->masks.empty();
  const std::array<std::int64_t, 4> shape{count, format_.channels, height, width};
  const std::array<std::int64_t, 3> mask_shape{count, height, width};
  if (batch.tensors().size() != (has_masks ? 2U : 1U)) {
    std::vector<at::Tensor> tensors{at::empty(shape, at::TensorOptions(at::kByte))};
    if (has_masks) tensors.push_back(at::empty(mask_shape, at::TensorOptions(at::kShort)));
    batch = Batch(std::move(tensors));
  }
  if (batch.tensors()[0].size(0) != count) {
    batch.tensors()[0].resize_(shape);
    if (has_masks) batch.tensors()[1].resize_(mask_shape);
  }
  auto* const planes = batch.tensors()[0].mutable_data_ptr<std::uint8_t>();
  auto* const labels = has_masks ? batch.tensors()[1].mutable_data_ptr<std::int16_t>() : nullptr;
  const at::Tensor numbers = indices.contiguous();
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t index = numbers.const_data_ptr<std::int64_t>()[i];
    if (index < 0 || index >= size())
      throw DataError({.place = "SegmentationFolder",
                       .found = "there is no sample " + std::to_string(index),
                       .wanted = "numbers below " + std::to_string(size())});
    const auto pair = static_cast<std::size_t>(samples_[static_cast<std::size_t>(index)]);
    const ImageSize in_file =
        decode_planes(pairs_->image(pair), format_, planes + i * format_.channels * height * width);
    if (has_masks) decode_mask(pair, in_file, labels + i * height * width);
  }
}

// Takes the nearest pixel where the mask is resized, as PIL's resize(size, NEAREST) does.
void MaskDataset::decode_mask(std::size_t pair, const ImageSize& size, std::int16_t* labels) const {
  const Image mask = read_mask(pairs_->mask(pair));
  if (mask.height != size[0] || mask.width != size[1])
    throw DataError(
        {.place = pairs_->mask(pair).string(),
         .found = "the mask has " + image_size_text({mask.height, mask.width}) +
                  " pixels (height x width), and its image " + pairs_->image(pair).string() + " " +
                  image_size_text(size),
         .wanted = "the same size",
         .remedy = "images are turned upright by their EXIF orientation; masks must fit the result"});
  values_->check(mask, pairs_->mask(pair));
  const auto [height, width] = format_.size;
  for (std::int64_t y = 0; y < height; ++y) {
    const std::uint8_t* const row =
        mask.pixels.data() + (2 * y + 1) * mask.height / (2 * height) * mask.width;
    for (std::int64_t x = 0; x < width; ++x)
      *labels++ = values_->labels[row[(2 * x + 1) * mask.width / (2 * width)]];
  }
}

}  // namespace kindling
