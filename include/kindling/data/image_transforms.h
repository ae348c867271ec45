#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/data/transform.h"

namespace kindling {

class DeviceConstant;

struct NormalizeOptions {
  std::vector<double> mean{0};
  std::vector<double> std{1};

  static constexpr auto fields = kindling::fields(
      kindling::field("mean", &NormalizeOptions::mean,
                      {.doc = "value to subtract, per channel or one for all"}),
      kindling::field(
          "std", &NormalizeOptions::std,
          {.doc = "value to divide by, per channel or one for all", .min = 0, .min_excluded = true}));
};

// Returns (image - mean) / std. Deterministic. The first use on a device copies the values there.
class KINDLING_API Normalize : public Transform {
 public:
  // Throws ConfigError for a std that is not positive and for lists that are empty or of different lengths.
  explicit Normalize(NormalizeOptions options);
  ~Normalize() override;
  // Throws DataError for images with another number of channels than the lists.
  Batch apply(Batch batch, const at::Tensor& uniforms) const override;

 private:
  std::unique_ptr<DeviceConstant> mean_, std_;  // [channels or 1, 1, 1]
};

struct RandomHorizontalFlipOptions {
  double p = 0.5;
  static constexpr auto fields = kindling::fields(kindling::field(
      "p", &RandomHorizontalFlipOptions::p, {.doc = "probability of a mirrored image", .min = 0, .max = 1}));
};

// Mirrors an image left to right, with its masks, if its random number is less than p.
class KINDLING_API RandomHorizontalFlip : public Transform {
 public:
  explicit RandomHorizontalFlip(RandomHorizontalFlipOptions options = {});
  std::int64_t num_random() const override { return 1; }
  Batch apply(Batch batch, const at::Tensor& uniforms) const override;

 private:
  RandomHorizontalFlipOptions options_;
};

struct RandomAffineOptions {
  std::array<double, 2> degrees{0, 0};
  std::array<double, 2> translate{0, 0};
  std::array<double, 2> scale{1, 1};
  std::string interpolation = "nearest";
  double fill = 0, mask_fill = 0;

  static constexpr auto fields = kindling::fields(
      kindling::field(
          "degrees", &RandomAffineOptions::degrees,
          {.doc = "smallest and largest angle of the clockwise rotation", .example = "[-15, 15]"}),
      kindling::field("translate", &RandomAffineOptions::translate,
                      {.doc = "largest shift along x and y, as fractions of width and height",
                       .min = 0,
                       .max = 1,
                       .example = "[0.1, 0.1]"}),
      kindling::field("scale", &RandomAffineOptions::scale,
                      {.doc = "smallest and largest magnification", .min = 0, .min_excluded = true}),
      kindling::field("interpolation", &RandomAffineOptions::interpolation,
                      {.doc = "how values between pixels are computed", .choices = "nearest|bilinear"}),
      kindling::field("fill", &RandomAffineOptions::fill, {.doc = "value of pixels from outside the image"}),
      kindling::field("mask_fill", &RandomAffineOptions::mask_fill,
                      {.doc = "value of pixels of masks and target images from outside"}));
};

// Rotates and scales images around their centre, then shifts them by whole pixels (torchvision's RandomAffine
// without shear); masks alike, integers by the nearest pixel. Random numbers: angle, shift along x, shift
// along y, scale.
class KINDLING_API RandomAffine : public Transform {
 public:
  // Throws ConfigError if an option is out of range or a range is reversed.
  explicit RandomAffine(RandomAffineOptions options = {});
  std::int64_t num_random() const override { return 4; }
  Batch apply(Batch batch, const at::Tensor& uniforms) const override;

 private:
  RandomAffineOptions options_;
};

struct RandomErasingOptions {
  double p = 0.5;
  std::array<double, 2> scale{0.02, 0.33};
  std::array<double, 2> ratio{0.3, 3.3};
  double value = 0;

  static constexpr auto fields = kindling::fields(
      kindling::field("p", &RandomErasingOptions::p,
                      {.doc = "probability of an erased rectangle", .min = 0, .max = 1}),
      kindling::field("scale", &RandomErasingOptions::scale,
                      {.doc = "smallest and largest erased fraction of the image", .min = 0, .max = 1}),
      kindling::field("ratio", &RandomErasingOptions::ratio,
                      {.doc = "smallest and largest height / width", .min = 0, .min_excluded = true}),
      kindling::field("value", &RandomErasingOptions::value, {.doc = "value of erased pixels"}));
};

// Overwrites a random rectangle (cutout; torchvision's RandomErasing): of ten random ones, the first that is
// smaller than the image; nothing if none is. Masks stay as they are. Random numbers: ten areas, ten ratios,
// top, left, whether to erase.
class KINDLING_API RandomErasing : public Transform {
 public:
  // Throws ConfigError if an option is out of range or a range is reversed.
  explicit RandomErasing(RandomErasingOptions options = {});
  std::int64_t num_random() const override;
  Batch apply(Batch batch, const at::Tensor& uniforms) const override;

 private:
  RandomErasingOptions options_;
};

}  // namespace kindling
