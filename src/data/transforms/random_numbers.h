#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>

#include "kindling/data/transform.h"

namespace kindling {

// Returns the images of the batch. Throws DataError, which names the transform, unless they are
// floating-point [batch, channels, height, width] and `uniforms` fits the transform.
const at::Tensor& checked_images(const Transform& transform, const char* name, const Batch& batch,
                                 const at::Tensor& uniforms);

// Throws DataError, which names the transform, unless `uniforms` is floating-point [batch, num_random()].
void check_uniforms(const Transform& transform, const char* name, const Batch& batch,
                    const at::Tensor& uniforms);

// Replaces the pixels of masks and other images, [batch, …, height, width] like the images, by those that
// `move` returns for [batch, channels, height, width]. Call it before the images, the first tensor, are
// replaced. Throws DataError, which names the transform, for a tensor that the rule in transform.h refuses.
Batch move_masks(const char* name, Batch batch, const std::function<at::Tensor(const at::Tensor&)>& move);

// Returns the pixels at `index`, int64 [batch or 1, out height, out width] of row · width + column, of pixels
// [batch, channels, height, width].
at::Tensor pixels_at(const at::Tensor& pixels, const at::Tensor& index);

// Returns `fill`. Throws DataError, which names the transform, if the dtype of the mask cannot hold it.
double checked_fill(const char* name, const at::Tensor& mask, double fill);

// Throws ConfigError unless lo <= hi.
void check_range(const char* transform, const char* option, const std::array<double, 2>& range);

// Throws ConfigError that names the missing option `size`.
[[noreturn]] void refuse_missing_size(const char* transform);

// Returns column `index` of `uniforms`, [batch].
inline at::Tensor uniform_column(const at::Tensor& uniforms, std::int64_t index) {
  return uniforms.select(1, index);
}

// Returns the random numbers between the bounds, of the shape of `uniforms`.
inline at::Tensor uniform_between(const at::Tensor& uniforms, const std::array<double, 2>& range) {
  return uniforms * (range[1] - range[0]) + range[0];
}

// Returns integers that are uniform in [0, count), as floating-point numbers of the shape of `uniforms`.
// Rounding in float32 may reach count, which the bound excludes.
inline at::Tensor uniform_index(const at::Tensor& uniforms, std::int64_t count) {
  return (uniforms * count).floor().clamp_max(count - 1);
}
inline at::Tensor uniform_index(const at::Tensor& uniforms, const at::Tensor& count) {
  return at::minimum((uniforms * count).floor(), count - 1);
}

// Returns a tensor [batch] in a form that multiplies images [batch, channels, height, width].
inline at::Tensor per_image(const at::Tensor& values) { return values.view({-1, 1, 1, 1}); }

// Returns 0, 1, …, size - 1 on the device and in the dtype of `like`, viewed as `shape`.
at::Tensor positions(std::int64_t size, at::IntArrayRef shape, const at::Tensor& like);

}  // namespace kindling
