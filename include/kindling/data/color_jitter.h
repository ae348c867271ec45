#pragma once

#include <cstdint>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/data/transform.h"

namespace kindling {

struct ColorJitterOptions {
  double brightness = 0;
  double contrast = 0;
  double saturation = 0;
  double hue = 0;

  static constexpr auto fields = kindling::fields(
      kindling::field(
          "brightness", &ColorJitterOptions::brightness,
          {.doc = "b: brightness is multiplied by a factor between max(0, 1 - b) and 1 + b", .min = 0}),
      kindling::field(
          "contrast", &ColorJitterOptions::contrast,
          {.doc = "c: contrast is multiplied by a factor between max(0, 1 - c) and 1 + c", .min = 0}),
      kindling::field(
          "saturation", &ColorJitterOptions::saturation,
          {.doc = "s: saturation is multiplied by a factor between max(0, 1 - s) and 1 + s", .min = 0}),
      kindling::field(
          "hue", &ColorJitterOptions::hue,
          {.doc = "h: hue is shifted by -h to h turns of the color wheel", .min = 0, .max = 0.5}));
};

// Changes brightness, contrast, saturation and hue of images in [0, 1] by torchvision's formulas, always in
// this order (torchvision's order is random). Grey images keep saturation and hue. Random numbers:
// brightness, contrast, saturation, hue.
class KINDLING_API ColorJitter : public Transform {
 public:
  // Throws ConfigError for options out of range.
  explicit ColorJitter(ColorJitterOptions options = {});
  std::int64_t num_random() const override { return 4; }
  // Throws DataError unless the images have 1 or 3 channels.
  Batch apply(Batch batch, const at::Tensor& uniforms) const override;

 private:
  ColorJitterOptions options_;
};

}  // namespace kindling
