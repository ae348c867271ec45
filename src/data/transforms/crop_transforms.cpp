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

void check_padding(const at::Tensor& images, const RandomCropOptions& options) {
  const std::int64_t height = images.size(2), width = images.size(3), p = options.padding;
  if (options.padding_mode == "reflect" && p >= std::min(height, width))
    throw DataError({.place = "random_crop",
                     .found = "the images have " + pixels_text(height, width) + " pixels, and padding is " +
                              std::to_string(p),
                     .wanted = "with padding_mode = \"reflect\", padding smaller than the images"});
  const auto& size = *options.size;
  if (height + 2 * p >= size[0] && width + 2 * p >= size[1]) return;
  throw DataError(
      {.place = "random_crop",
       .found = "the images have " + pixels_text(height + 2 * p, width + 2 * p) + " pixels with padding",
       .wanted = "at least the crop, " + pixels_text(size[0], size[1]),
       .remedy = "a smaller size or more padding"});
}

// Where the pixels of a crop come from along one axis: `index`, int64 [batch, out], of an image with `in`
// pixels, and which of them are of the constant padding, bool [batch, out].
struct CropAxis {
  at::Tensor index, is_padding;
};

// `uniforms`: [batch], of the position of the crop. Padding by index works for masks of every dtype.
CropAxis crop_axis(const at::Tensor& uniforms, std::int64_t in, std::int64_t out,
                   const RandomCropOptions& options) {
  const at::Tensor first = uniform_index(uniforms, in + 2 * options.padding - out + 1).to(at::kLong);
  const at::Tensor index = first.view({-1, 1}) + positions(out, {1, out}, first) - options.padding;
  const std::int64_t last = in - 1;
  if (options.padding_mode == "reflect")  // 2·last - i after the last pixel
    return {.index = last - (last - index.abs()).abs(), .is_padding = {}};
  return {.index = index.clamp(0, last), .is_padding = (index < 0) | (index > last)};
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

// Returns the pixels whose centres are nearest to those of the resized crop, int64 [batch, out].
at::Tensor nearest_pixels(const Axis& axis) {
  const at::Tensor length = axis.length.to(at::kLong).view({-1, 1});
  const at::Tensor half_pixels = positions(axis.out, {1, axis.out}, length) * 2 + 1;
  return axis.first.to(at::kLong).view({-1, 1}) + (half_pixels * length).div(2 * axis.out, "floor");
}

at::Tensor grid_of(const at::Tensor& rows, const at::Tensor& columns, std::int64_t width) {
  return rows.unsqueeze(2) * width + columns.unsqueeze(1);
}

// The whole of an axis, for all samples.
Axis whole_axis(std::int64_t in, std::int64_t out, const at::Tensor& images) {
  const auto options = images.options().dtype(at::kLong);
  return {.first = at::zeros({1}, options), .length = at::full({1}, in, options), .in = in, .out = out};
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
  const at::Tensor images = checked_images(*this, "random_crop", batch, uniforms);
  check_padding(images, options_);
  const auto [height, width] = *options_.size;
  const CropAxis rows = crop_axis(uniform_column(uniforms, 0), images.size(2), height, options_);
  const CropAxis columns = crop_axis(uniform_column(uniforms, 1), images.size(3), width, options_);
  const at::Tensor index = grid_of(rows.index, columns.index, images.size(3));
  const bool has_fill = options_.padding > 0 && options_.padding_mode == "constant";
  const auto cropped = [&](const at::Tensor& pixels, double fill) {
    at::Tensor crops = pixels_at(pixels, index);
    if (!has_fill) return crops;
    return crops.masked_fill_((rows.is_padding.unsqueeze(2) | columns.is_padding.unsqueeze(1)).unsqueeze(1),
                              fill);
  };
  batch = move_masks("random_crop", std::move(batch), [&](const at::Tensor& mask) {
    return cropped(mask, has_fill ? checked_fill("random_crop", mask, options_.mask_fill) : 0);
  });
  batch.tensors().front() = cropped(images, options_.fill);
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
  const auto resize = [&](const at::Tensor& pixels) {
    return resized(pixels, rows, columns, options_.antialias);
  };
  batch = move_masks("random_resized_crop", std::move(batch), [&](const at::Tensor& mask) {
    if (mask.is_floating_point()) return resize(mask);
    return pixels_at(mask, grid_of(nearest_pixels(rows), nearest_pixels(columns), width));
  });
  batch.tensors().front() = resize(images);
  return batch;
}

Resize::Resize(ResizeOptions options) : options_(std::move(options)) {
  validate(options_, "resize");
  if (!options_.size) refuse_missing_size("resize");
}

Batch Resize::apply(Batch batch, const at::Tensor& uniforms) const {
  const at::Tensor images = checked_images(*this, "resize", batch, uniforms);
  const auto resize = [&](const at::Tensor& pixels) {
    return options_.antialias ? at::_upsample_bilinear2d_aa(pixels, *options_.size, false)
                              : at::upsample_bilinear2d(pixels, *options_.size, false);
  };
  batch = move_masks("resize", std::move(batch), [&](const at::Tensor& mask) {
    if (mask.is_floating_point()) return resize(mask);
    const std::int64_t height = images.size(2), width = images.size(3);
    const at::Tensor rows = nearest_pixels(whole_axis(height, (*options_.size)[0], images));
    const at::Tensor columns = nearest_pixels(whole_axis(width, (*options_.size)[1], images));
    return pixels_at(mask, grid_of(rows, columns, width));
  });
  batch.tensors().front() = resize(images);
  return batch;
}

}  // namespace kindling
