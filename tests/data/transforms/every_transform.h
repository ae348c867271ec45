#pragma once

#include <ATen/Functions.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kindling/data/color_jitter.h"
#include "kindling/data/crop_transforms.h"
#include "kindling/data/image_transforms.h"
#include "kindling/data/mix_transforms.h"
#include "kindling/data/transform.h"

namespace kindling {

using NamedTransform = std::pair<std::string, std::shared_ptr<const Transform>>;

// Each transform with options that use all of its code, for images with three channels and 10 classes.
inline std::vector<NamedTransform> every_transform() {
  const auto make = [](auto transform) {
    return std::make_shared<decltype(transform)>(std::move(transform));
  };
  return {{"normalize", std::make_shared<Normalize>(NormalizeOptions{{0.1, 0.2, 0.3}, {0.5, 0.6, 0.7}})},
          {"random_crop", make(RandomCrop({.size = {{7, 6}}, .padding = 2, .fill = 0.5}))},
          {"random_resized_crop", make(RandomResizedCrop({.size = {{5, 9}}}))},
          {"random_horizontal_flip", make(RandomHorizontalFlip())},
          {"random_affine", make(RandomAffine({.degrees = {-30, 30},
                                               .translate = {0.2, 0.3},
                                               .scale = {0.8, 1.3},
                                               .interpolation = "bilinear",
                                               .fill = 0.25}))},
          {"random_erasing", make(RandomErasing({.p = 0.7}))},
          {"color_jitter",
           make(ColorJitter({.brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = 0.3}))},
          {"resize", make(Resize({.size = {{4, 13}}}))},
          {"mix_up", std::make_shared<MixUp>(MixOptions{.alpha = 0.4})},
          {"cut_mix", std::make_shared<CutMix>(MixOptions{.alpha = 0.4})},
          {"one_hot", make(OneHot())}};
}

// Images in [0, 1], labels and the random numbers of a transform, all on the CPU.
struct TransformCase {
  explicit TransformCase(const Transform& transform, at::ScalarType dtype = at::kDouble,
                         std::int64_t samples = 12)
      : images(at::rand({samples, 3, 8, 10})),
        labels(at::randint(10, {samples}, at::kLong)),
        uniforms(at::rand({samples, transform.num_random()}, dtype)) {}
  at::Tensor images, labels, uniforms;
};

}  // namespace kindling
