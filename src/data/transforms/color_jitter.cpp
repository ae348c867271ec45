#include "kindling/data/color_jitter.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <string>

#include "data/transforms/random_numbers.h"
#include "kindling/base/error.h"

namespace kindling {
namespace {

// Returns a factor per image, [batch, 1, 1, 1].
at::Tensor jitter_factor(const at::Tensor& uniforms, std::int64_t column, double amount,
                         const at::Tensor& images) {
  const at::Tensor factor =
      uniform_between(uniform_column(uniforms, column), {std::max(0.0, 1 - amount), 1 + amount});
  return per_image(factor).to(images.scalar_type());
}

// Returns the brightness that PIL and torchvision use, [batch, 1, height, width].
at::Tensor grey_of(const at::Tensor& images) {
  if (images.size(1) == 1) return images;
  return images.narrow(1, 0, 1) * 0.2989 + images.narrow(1, 1, 1) * 0.587 + images.narrow(1, 2, 1) * 0.114;
}

// Returns the means [batch, 1, 1, 1] of images [batch, 1, height, width]. By rows first: over both at once,
// the last bits depend on the batch size, which decides how threads divide the sum.
at::Tensor mean_of(const at::Tensor& grey) {
  return grey.mean(3, /*keepdim=*/true).mean(2, /*keepdim=*/true);
}

at::Tensor blended(const at::Tensor& images, const at::Tensor& other, const at::Tensor& factor) {
  return (images * factor + other * (1 - factor)).clamp(0, 1);
}

// Returns the hue in turns, [batch, height, width]. `range` is the largest minus the smallest channel.
at::Tensor hue_of(const at::Tensor& images, const at::Tensor& largest, const at::Tensor& range) {
  const at::Tensor r = images.select(1, 0), g = images.select(1, 1), b = images.select(1, 2);
  const at::Tensor divisor = at::where(range == 0, 1.0, range).to(images.scalar_type());
  const at::Tensor by_red = (g - b) / divisor, by_green = 2 + (b - r) / divisor,
                   by_blue = 4 + (r - g) / divisor;
  const at::Tensor hue = at::where(largest == r, by_red, at::where(largest == g, by_green, by_blue));
  return (hue / 6 + 1).fmod(1);
}

// Shifts the hue of RGB images by `turns` [batch, 1, 1].
at::Tensor with_hue_shifted(const at::Tensor& images, const at::Tensor& turns) {
  const at::Tensor largest = images.amax(1), range = largest - images.amin(1);
  const at::Tensor hue = hue_of(images, largest, range) + turns;
  // The channel is `largest` within a third of a turn around its hue and largest - range at the opposite.
  const auto channel = [&](double sixths) {
    const at::Tensor position = (hue * 6 + sixths).remainder(6);
    return largest - range * at::minimum(position, 4 - position).clamp(0, 1);
  };
  return at::stack({channel(5), channel(3), channel(1)}, 1).clamp(0, 1);
}

}  // namespace

ColorJitter::ColorJitter(ColorJitterOptions options) : options_(options) {
  validate(options, "color_jitter");
}

Batch ColorJitter::apply(Batch batch, const at::Tensor& uniforms) const {
  at::Tensor images = checked_images(*this, "color_jitter", batch, uniforms);
  const std::int64_t channels = images.size(1);
  if (channels != 1 && channels != 3)
    throw DataError({.place = "color_jitter",
                     .found = "the images have " + std::to_string(channels) + " channels",
                     .wanted = "1 (grey) or 3 (RGB)"});
  const auto factor = [&](std::int64_t column, double amount) {
    return jitter_factor(uniforms, column, amount, images);
  };
  if (options_.brightness > 0) images = (images * factor(0, options_.brightness)).clamp(0, 1);
  if (options_.contrast > 0) images = blended(images, mean_of(grey_of(images)), factor(1, options_.contrast));
  if (options_.saturation > 0 && channels == 3)
    images = blended(images, grey_of(images), factor(2, options_.saturation));
  if (options_.hue > 0 && channels == 3) {
    const at::Tensor turns = uniform_between(uniform_column(uniforms, 3), {-options_.hue, options_.hue});
    images = with_hue_shifted(images, turns.view({-1, 1, 1}).to(images.scalar_type()));
  }
  batch.tensors().front() = images;
  return batch;
}

}  // namespace kindling
