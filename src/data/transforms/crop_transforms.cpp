#include "kindling/data/crop_transforms.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "data/transforms/random_boxes.h"
#include "data/transforms/random_numbers.h"
#include "kindling/base/error.h"

namespace kindling {
namespace {

std::string pixels_text(std::int64_t height, std::int64_t width) {
  return std::to_string(height) + " x " + std::to_string(width);
}

at::Tensor padded(const at::Tensor& images, const RandomCropOptions& options) {
  const std::int64_t p = options.padding;
  if (p == 0) return images;
  const std::string& mode = options.padding_mode;
  if (mode == "constant") return at::constant_pad_nd(images, {p, p, p, p}, options.fill);
  if (mode == "reflect" && p >= std::min(images.size(2), images.size(3)))
    throw DataError({.place = "random_crop",
                     .found = "the images have " + pixels_text(images.size(2), images.size(3)) +
                              " pixels, and padding is " + std::to_string(p),
                     .wanted = "with padding_mode = \"reflect\", padding smaller than the images"});
  return at::pad(images, {p, p, p, p}, mode == "edge" ? "replicate" : "reflect");
}

// Returns the crops of images [batch, channels, …], whose corners are `top` and `left`, integers [batch].
at::Tensor crops_at(const at::Tensor& images, const at::Tensor& top, const at::Tensor& left,
                    const std::array<std::int64_t, 2>& size) {
  const std::int64_t batch = images.size(0), channels = images.size(1), width = images.size(3);
  const at::Tensor rows = top.view({-1, 1, 1}) + positions(size[0], {1, size[0], 1}, top);
  const at::Tensor columns = left.view({-1, 1, 1}) + positions(size[1], {1, 1, size[1]}, left);
  const at::Tensor pixels =
      (rows * width + columns).view({batch, 1, size[0] * size[1]}).expand({-1, channels, -1});
  return images.flatten(2).gather(2, pixels).view({batch, channels, size[0], size[1]});
}

// One axis of crops: the first pixel and the number of pixels, [batch], of an image with `in` pixels.
struct Axis {
  at::Tensor first, length;
  std::int64_t in = 0, out = 0;
};

// The pixels of a crop that make up each resized one: `index` in the image and `weight`, [batch, out] for
// each of the taps.
struct Taps {
  std::vector<at::Tensor> index{}, weight{};
};

// Returns the weights of PIL and of at::_upsample_bilinear2d_aa for the crop, or without antialiasing those
// of at::upsample_bilinear2d.
Taps resize_taps(const Axis& axis, bool antialias) {
  const at::Tensor length = axis.length.view({-1, 1}), first = axis.first.view({-1, 1});
  const at::Tensor scale = length / axis.out;
  const at::Tensor centers = (positions(axis.out, {1, axis.out}, length) + 0.5) * scale;
  const at::Tensor reach = antialias ? scale.clamp_min(1) : at::ones_like(scale);  // in pixels to both sides
  // Pixels count from the edge of the crop, so that the differences are exact; pixel i has its centre at i +
  // 0.5.
  const at::Tensor begin = (centers - reach + 0.5).floor();
  const double largest_scale = static_cast<double>(axis.in) / static_cast<double>(axis.out);
  const double largest_reach = antialias ? std::max(largest_scale, 1.0) : 1.0;
  Taps taps;
  at::Tensor sum;
  for (int tap = 0; tap < static_cast<int>(std::ceil(2 * largest_reach)); ++tap) {
    const at::Tensor pixel = begin + tap;
    const at::Tensor inside = (pixel >= 0) & (pixel < length);
    const at::Tensor weight = (1 - (pixel + 0.5 - centers).abs() / reach).clamp_min(0) * inside;
    sum = sum.defined() ? sum + weight : weight;
    taps.weight.push_back(weight);
    taps.index.push_back((first + at::minimum(pixel.clamp_min(0), length - 1)).to(at::kLong));
  }
  for (at::Tensor& weight : taps.weight) weight = weight / sum;
  return taps;
}

// Returns [batch, out, …] for images [batch, in, …]: weighted sums of rows.
at::Tensor weighted_rows(const at::Tensor& images, const Taps& taps, std::int64_t out) {
  const std::int64_t batch = images.size(0), in = images.size(1);
  const at::Tensor rows = images.reshape({batch * in, -1});
  const at::Tensor first_row = positions(batch, {batch, 1}, taps.index.front()) * in;
  at::Tensor sum;
  for (std::size_t tap = 0; tap < taps.index.size(); ++tap) {
    const at::Tensor weight = taps.weight[tap].to(images.scalar_type()).view({-1, 1});
    const at::Tensor part = rows.index_select(0, (taps.index[tap] + first_row).flatten()).mul_(weight);
    sum = sum.defined() ? sum.add_(part) : part;
  }
  std::vector<std::int64_t> shape = images.sizes().vec();
  shape[1] = out;
  return sum.view(shape);
}

// Returns the images, resized from the crops that the axes describe. Sums tap by tap: a matrix multiplication
// would depend on the batch size in its last bits, and on the precision of the model's multiplications.
at::Tensor resized(const at::Tensor& images, const Axis& rows, const Axis& columns, bool antialias) {
  const at::Tensor tall = images.permute({0, 2, 1, 3});  // [batch, rows, channels, columns]
  const at::Tensor wide = weighted_rows(tall, resize_taps(rows, antialias), rows.out).permute({0, 3, 2, 1});
  return weighted_rows(wide, resize_taps(columns, antialias), columns.out).permute({0, 2, 3, 1}).contiguous();
}

// Returns the largest central box within the ratios, as torchvision does: height, width.
std::array<std::int64_t, 2> central_box(std::int64_t height, std::int64_t width,
                                        const std::array<double, 2>& ratio) {
  const double image_ratio = static_cast<double>(width) / static_cast<double>(height);
  const auto nearest = [](double value) { return static_cast<std::int64_t>(std::nearbyint(value)); };
  if (image_ratio < ratio[0]) return {nearest(static_cast<double>(width) / ratio[0]), width};
  if (image_ratio > ratio[1]) return {height, nearest(static_cast<double>(height) * ratio[1])};
  return {height, width};
}

}  // namespace

RandomCrop::RandomCrop(RandomCropOptions options) : options_(std::move(options)) {
  validate(options_, "random_crop");
  if (!options_.size) refuse_missing_size("random_crop");
}

Batch RandomCrop::apply(Batch batch, const at::Tensor& uniforms) const {
  const at::Tensor images = padded(checked_images(*this, "random_crop", batch, uniforms), options_);
  const auto& size = *options_.size;
  const std::int64_t rows = images.size(2) - size[0] + 1, columns = images.size(3) - size[1] + 1;
  if (rows < 1 || columns < 1)
    throw DataError(
        {.place = "random_crop",
         .found = "the images have " + pixels_text(images.size(2), images.size(3)) + " pixels with padding",
         .wanted = "at least the crop, " + pixels_text(size[0], size[1]),
         .remedy = "a smaller size or more padding"});
  const at::Tensor top = uniform_index(uniform_column(uniforms, 0), rows).to(at::kLong);
  const at::Tensor left = uniform_index(uniform_column(uniforms, 1), columns).to(at::kLong);
  batch.tensors().front() = crops_at(images, top, left, size);
  return batch;
}

RandomResizedCrop::RandomResizedCrop(RandomResizedCropOptions options) : options_(std::move(options)) {
  validate(options_, "random_resized_crop");
  if (!options_.size) refuse_missing_size("random_resized_crop");
  check_range("random_resized_crop", "scale", options_.scale);
  check_range("random_resized_crop", "ratio", options_.ratio);
}

std::int64_t RandomResizedCrop::num_random() const { return kBoxRandom; }

Batch RandomResizedCrop::apply(Batch batch, const at::Tensor& uniforms) const {
  const at::Tensor images = checked_images(*this, "random_resized_crop", batch, uniforms);
  const std::int64_t height = images.size(2), width = images.size(3);
  const RandomBoxes boxes = random_boxes(
      uniforms, {.height = height, .width = width, .scale = options_.scale, .ratio = options_.ratio});
  const auto [central_height, central_width] = central_box(height, width, options_.ratio);
  const auto or_central = [&](const at::Tensor& value, std::int64_t central) {
    return at::where(boxes.found, value, static_cast<double>(central));
  };
  const Axis rows{or_central(boxes.top, (height - central_height) / 2),
                  or_central(boxes.height, central_height), height, (*options_.size)[0]};
  const Axis columns{or_central(boxes.left, (width - central_width) / 2),
                     or_central(boxes.width, central_width), width, (*options_.size)[1]};
  batch.tensors().front() = resized(images, rows, columns, options_.antialias);
  return batch;
}

Resize::Resize(ResizeOptions options) : options_(std::move(options)) {
  validate(options_, "resize");
  if (!options_.size) refuse_missing_size("resize");
}

Batch Resize::apply(Batch batch, const at::Tensor& uniforms) const {
  const at::Tensor images = checked_images(*this, "resize", batch, uniforms);
  batch.tensors().front() = options_.antialias ? at::_upsample_bilinear2d_aa(images, *options_.size, false)
                                               : at::upsample_bilinear2d(images, *options_.size, false);
  return batch;
}

}  // namespace kindling
