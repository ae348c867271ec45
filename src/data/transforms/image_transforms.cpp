#include "kindling/data/image_transforms.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <numbers>
#include <string>
#include <utility>

#include "data/transforms/device_constant.h"
#include "data/transforms/random_boxes.h"
#include "data/transforms/random_numbers.h"
#include "kindling/base/error.h"

namespace kindling {
namespace {

std::unique_ptr<DeviceConstant> per_channel(const std::vector<double>& values) {
  return std::make_unique<DeviceConstant>(at::tensor(values, at::kFloat).view({-1, 1, 1}));
}

// Returns where each pixel comes from, [batch, height, width, 2], in the coordinates of at::grid_sampler:
// from -1 to 1 over the image, so a pixel is 2 / width wide. Element by element, because the last bits of a
// matrix multiplication, as in at::affine_grid_generator, may depend on the batch size.
at::Tensor source_grid(const at::Tensor& uniforms, const RandomAffineOptions& options, std::int64_t height,
                       std::int64_t width, at::ScalarType dtype) {
  const double w = static_cast<double>(width), h = static_cast<double>(height);
  const at::Tensor angle =
      uniform_between(uniform_column(uniforms, 0), options.degrees) * (std::numbers::pi / 180);
  const auto shift = [&](std::int64_t column, double largest) {
    return uniform_between(uniform_column(uniforms, column), {-largest, largest}).round();
  };
  const at::Tensor x = shift(1, options.translate[0] * w), y = shift(2, options.translate[1] * h);
  const at::Tensor scale = uniform_between(uniform_column(uniforms, 3), options.scale);
  const at::Tensor cos = angle.cos() / scale, sin = angle.sin() / scale;
  const auto of_image = [](const at::Tensor& values) { return values.view({-1, 1, 1}); };
  const at::Tensor from_x = ((positions(width, {1, 1, width}, uniforms) * 2 + 1) / w) - 1;
  const at::Tensor from_y = ((positions(height, {1, height, 1}, uniforms) * 2 + 1) / h) - 1;
  // Only the sums of a row and a column are as large as the image.
  const at::Tensor x_of_columns = from_x * of_image(cos) - of_image((cos * x + sin * y) * (2 / w));
  const at::Tensor y_of_columns = of_image((sin * x - cos * y) * (2 / h)) - from_x * of_image(sin * (w / h));
  return at::stack({x_of_columns.to(dtype) + (from_y * of_image(sin * (h / w))).to(dtype),
                    y_of_columns.to(dtype) + (from_y * of_image(cos)).to(dtype)},
                   3);
}

// The numbers of at::grid_sampler for its modes.
constexpr std::int64_t kBilinear = 0, kNearest = 1;

// Returns the pixels that the grid points to. Pixels from outside the image become `fill`.
at::Tensor sampled(const at::Tensor& pixels, const at::Tensor& grid, std::int64_t mode, double fill) {
  const at::Tensor moved = at::grid_sampler_2d(fill != 0 ? pixels - fill : pixels, grid, mode,
                                               /*padding_mode=*/0, /*align_corners=*/false);
  return fill != 0 ? moved + fill : moved;
}

// Returns the nearest pixels for values of any dtype. The sampler finds rows and columns instead of values,
// which it could not hold exactly; the mask then has its pixels from where the images have theirs, at ties
// between two pixels, too. Row and column 0 are outside the image.
at::Tensor sampled_nearest(const at::Tensor& pixels, const at::Tensor& grid, double fill) {
  const std::int64_t height = pixels.size(2), width = pixels.size(3);
  const at::Tensor exact = grid.element_size() < 4 ? grid.to(at::kFloat) : grid;
  const at::Tensor rows = positions(height, {height, 1}, exact).expand({height, width});
  const at::Tensor columns = positions(width, {1, width}, exact).expand({height, width});
  const at::Tensor from_one = at::stack({rows, columns}).add_(1).expand({pixels.size(0), 2, height, width});
  const at::Tensor found = sampled(from_one, exact, kNearest, 0).to(at::kLong);
  const at::Tensor row = found.select(1, 0), column = found.select(1, 1);
  const at::Tensor index = ((row - 1) * width + column - 1).clamp_min(0);
  return pixels_at(pixels, index).masked_fill_((row == 0).unsqueeze(1), fill);
}

}  // namespace

Normalize::Normalize(NormalizeOptions options) {
  validate(options, "normalize");
  if (options.mean.empty() || options.mean.size() != options.std.size())
    throw ConfigError({.place = "normalize",
                       .found = std::to_string(options.mean.size()) + " numbers in mean, " +
                                std::to_string(options.std.size()) + " in std",
                       .wanted = "one number per channel in both, or one for all channels"});
  mean_ = per_channel(options.mean);
  std_ = per_channel(options.std);
}

Normalize::~Normalize() = default;

Batch Normalize::apply(Batch batch, const at::Tensor& uniforms) const {
  const at::Tensor images = checked_images(*this, "normalize", batch, uniforms);
  const at::Tensor mean = mean_->like(images), std = std_->like(images);
  if (mean.size(0) != 1 && mean.size(0) != images.size(1))
    throw DataError({.place = "normalize",
                     .found = "the images have " + std::to_string(images.size(1)) + " channels",
                     .wanted = std::to_string(mean.size(0)) + ", the length of mean and std"});
  batch.tensors().front() = (images - mean) / std;
  return batch;
}

RandomHorizontalFlip::RandomHorizontalFlip(RandomHorizontalFlipOptions options) : options_(options) {
  validate(options, "random_horizontal_flip");
}

Batch RandomHorizontalFlip::apply(Batch batch, const at::Tensor& uniforms) const {
  const at::Tensor images = checked_images(*this, "random_horizontal_flip", batch, uniforms);
  const at::Tensor flips = per_image(uniform_column(uniforms, 0) < options_.p);
  const auto flipped = [&](const at::Tensor& pixels) { return at::where(flips, pixels.flip({3}), pixels); };
  batch = move_masks("random_horizontal_flip", std::move(batch), flipped);
  batch.tensors().front() = flipped(images);
  return batch;
}

RandomAffine::RandomAffine(RandomAffineOptions options) : options_(std::move(options)) {
  validate(options_, "random_affine");
  check_range("random_affine", "degrees", options_.degrees);
  check_range("random_affine", "scale", options_.scale);
}

Batch RandomAffine::apply(Batch batch, const at::Tensor& uniforms) const {
  const at::Tensor images = checked_images(*this, "random_affine", batch, uniforms);
  const at::Tensor grid =
      source_grid(uniforms, options_, images.size(2), images.size(3), images.scalar_type());
  const std::int64_t mode = options_.interpolation == "nearest" ? kNearest : kBilinear;
  batch = move_masks("random_affine", std::move(batch), [&](const at::Tensor& mask) {
    const double fill = checked_fill("random_affine", mask, options_.mask_fill);
    return mode == kNearest || !mask.is_floating_point()
               ? sampled_nearest(mask, grid, fill)
               : sampled(mask, grid.to(mask.scalar_type()), mode, fill);
  });
  batch.tensors().front() = sampled(images, grid, mode, options_.fill);
  return batch;
}

RandomErasing::RandomErasing(RandomErasingOptions options) : options_(options) {
  validate(options, "random_erasing");
  check_range("random_erasing", "scale", options.scale);
  check_range("random_erasing", "ratio", options.ratio);
}

std::int64_t RandomErasing::num_random() const { return kBoxRandom + 1; }

Batch RandomErasing::apply(Batch batch, const at::Tensor& uniforms) const {
  const at::Tensor images = checked_images(*this, "random_erasing", batch, uniforms);
  const std::int64_t height = images.size(2), width = images.size(3);
  const RandomBoxes boxes = random_boxes(uniforms, {.height = height,
                                                    .width = width,
                                                    .scale = options_.scale,
                                                    .ratio = options_.ratio,
                                                    .is_erasing = true});
  const at::Tensor rows = positions(height, {1, 1, height, 1}, uniforms);
  const at::Tensor columns = positions(width, {1, 1, 1, width}, uniforms);
  const at::Tensor top = per_image(boxes.top), left = per_image(boxes.left);
  const at::Tensor erased = (rows >= top) & (rows < top + per_image(boxes.height)) & (columns >= left) &
                            (columns < left + per_image(boxes.width)) &
                            per_image(uniform_column(uniforms, kBoxRandom) < options_.p);
  batch.tensors().front() = images.masked_fill(erased, options_.value);
  return batch;
}

}  // namespace kindling
