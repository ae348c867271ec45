#include "kindling/data/transform.h"

#include <ATen/Functions.h>

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
