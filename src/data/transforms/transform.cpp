#include "kindling/data/transform.h"

#include <ATen/Functions.h>
#include <c10/util/accumulate.h>

#include <cmath>
#include <cstddef>
#include <string>
#include <utility>

#include "data/transforms/random_numbers.h"
#include "kindling/base/error.h"
#include "kindling/base/number_text.h"
#include "tensors/shape_text.h"

namespace kindling {

Transform::~Transform() = default;

Compose::Compose(std::vector<std::shared_ptr<const Transform>> parts) : parts_(std::move(parts)) {
  for (const auto& part : parts_) {
    if (part == nullptr)
      throw ConfigError(
          {.place = "Compose", .found = "a transform is a null pointer", .wanted = "transforms"});
    num_random_ += part->num_random();
  }
}

Batch Compose::apply(Batch batch, const at::Tensor& uniforms) const {
  check_uniforms(*this, "Compose", batch, uniforms);
  std::int64_t first = 0;
  for (const auto& part : parts_) {
    const std::int64_t count = part->num_random();
    batch = part->apply(std::move(batch), count == 0 ? at::Tensor() : uniforms.narrow(1, first, count));
    first += count;
  }
  return batch;
}

void check_uniforms(const Transform& transform, const char* name, const Batch& batch,
                    const at::Tensor& uniforms) {
  const std::int64_t count = transform.num_random();
  if (count == 0) return;
  const std::int64_t samples = batch.num_samples();
  if (uniforms.defined() && uniforms.is_floating_point() && uniforms.dim() == 2 &&
      uniforms.size(0) == samples && uniforms.size(1) == count)
    return;
  throw DataError(
      {.place = name,
       .found = "the random numbers are " + (uniforms.defined() ? type_text(uniforms) : "undefined"),
       .wanted = "Float or Double [" + std::to_string(samples) + ", " + std::to_string(count) + "]"});
}

const at::Tensor& checked_images(const Transform& transform, const char* name, const Batch& batch,
                                 const at::Tensor& uniforms) {
  if (batch.empty()) throw DataError({.place = name, .found = "the batch is empty", .wanted = "images"});
  const at::Tensor& images = batch.tensors().front();
  if (images.dim() != 4 || !images.is_floating_point())
    throw DataError({.place = name,
                     .found = "the images are " + type_text(images),
                     .wanted = "floating-point [batch, channels, height, width]",
                     .remedy = "convert bytes before: images.to(torch::kFloat).div(255)"});
  check_uniforms(transform, name, batch, uniforms);
  return images;
}

namespace {

[[noreturn]] void refuse_tensor(const char* name, const Batch& batch, std::size_t index) {
  const at::Tensor& images = batch.tensors().front();
  const at::Tensor& tensor = batch.tensors()[index];
  const bool is_elsewhere = tensor.device() != images.device();
  throw DataError(
      {.place = name,
       .found = "tensor " + std::to_string(index) + " of the batch is " + type_text(tensor) +
                (is_elsewhere ? " on " + tensor.device().str() : "") + ", and the images are " +
                type_text(images) + (is_elsewhere ? " on " + images.device().str() : ""),
       .wanted = "a mask or other images with the same height and width, [batch, height, width] or [batch, "
                 "channels, height, width], whose pixels move with those of the images, or values without "
                 "pixels, [batch] or [batch, values], which stay as they are",
       .remedy = "resize masks to the images and flatten other values in the data module, or derive from "
                 "kindling::Transform"});
}

}  // namespace

Batch move_masks(const char* name, Batch batch, const std::function<at::Tensor(const at::Tensor&)>& move) {
  const at::Tensor images = batch.tensors().front();
  const at::IntArrayRef height_and_width = images.sizes().slice(2);
  for (std::size_t i = 1; i < batch.tensors().size(); ++i) {
    at::Tensor& tensor = batch.tensors()[i];
    if (tensor.dim() < 3) continue;
    std::vector<std::int64_t> shape = tensor.sizes().vec();
    const std::size_t row = shape.size() - 2;
    if (tensor.sizes().slice(row) != height_and_width || tensor.size(0) != images.size(0) ||
        tensor.device() != images.device())
      refuse_tensor(name, batch, i);
    const std::int64_t channels = c10::multiply_integers(tensor.sizes().slice(1, row - 1));
    const at::Tensor moved = move(tensor.reshape({shape[0], channels, shape[row], shape[row + 1]}));
    shape[row] = moved.size(2);
    shape[row + 1] = moved.size(3);
    tensor = moved.reshape(shape);
  }
  return batch;
}

at::Tensor pixels_at(const at::Tensor& pixels, const at::Tensor& index) {
  const std::int64_t batch = pixels.size(0), channels = pixels.size(1);
  const at::Tensor of_channels = index.flatten(1).unsqueeze(1).expand({batch, channels, -1});
  return pixels.flatten(2).gather(2, of_channels).view({batch, channels, index.size(1), index.size(2)});
}

double checked_fill(const char* name, const at::Tensor& mask, double fill) {
  if (!at::isIntegralType(mask.scalar_type(), /*includeBool=*/true)) return fill;
  const bool is_signed = at::isSignedType(mask.scalar_type());
  const double bits = mask.scalar_type() == at::kBool ? 1 : 8 * static_cast<double>(mask.element_size());
  const double end = std::exp2(bits - (is_signed ? 1 : 0));
  if (fill == std::floor(fill) && fill < end && fill >= (is_signed ? -end : 0)) return fill;
  throw DataError({.place = std::string(name) + ": mask_fill",
                   .found = "it is " + number_text(fill) + ", and a mask has the dtype " +
                            c10::toString(mask.scalar_type()),
                   .wanted = "a value that the mask can hold",
                   .remedy = "a class number, such as that of the background"});
}

void check_range(const char* transform, const char* option, const std::array<double, 2>& range) {
  if (range[0] <= range[1]) return;
  throw ConfigError({.place = std::string(transform) + ": " + option,
                     .found = "it is [" + number_text(range[0]) + ", " + number_text(range[1]) + "]",
                     .wanted = "the smaller number first"});
}

void refuse_missing_size(const char* transform) {
  throw ConfigError({.place = std::string(transform) + ": size",
                     .found = "it is missing",
                     .wanted = "height and width in pixels",
                     .remedy = "size = [32, 32]"});
}

at::Tensor positions(std::int64_t size, at::IntArrayRef shape, const at::Tensor& like) {
  return at::arange(size, like.options()).view(shape);
}

}  // namespace kindling
