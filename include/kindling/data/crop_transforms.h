#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/data/transform.h"

namespace kindling {

struct RandomCropOptions {
  std::optional<std::array<std::int64_t, 2>> size{};
  std::int64_t padding = 0;
  double fill = 0, mask_fill = 0;
  std::string padding_mode = "constant";

  static constexpr auto fields = kindling::fields(
      kindling::field("size", &RandomCropOptions::size,
                      {.doc = "height and width of the crop in pixels", .min = 1, .example = "[28, 28]"}),
      kindling::field("padding", &RandomCropOptions::padding,
                      {.doc = "pixels added to each side before the crop", .min = 0}),
      kindling::field("fill", &RandomCropOptions::fill, {.doc = "value of added pixels"}),
      kindling::field("mask_fill", &RandomCropOptions::mask_fill,
                      {.doc = "value of pixels that are added to masks and target images"}),
      kindling::field("padding_mode", &RandomCropOptions::padding_mode,
                      {.doc = "added pixels: the value of fill, the nearest pixel or the mirror image",
                       .choices = "constant|edge|reflect"}));
};

// Cuts [size] out of the padded image, at a position that is uniform over all whole pixels (torchvision's
// RandomCrop), and the same part of masks. Random numbers: top, left.
class KINDLING_API RandomCrop : public Transform {
 public:
  // Throws ConfigError if `size` is missing or an option is out of range.
  explicit RandomCrop(RandomCropOptions options);
  std::int64_t num_random() const override { return 2; }
  // Throws DataError for images that are smaller than the crop.
  Batch apply(Batch batch, const at::Tensor& uniforms) const override;

 private:
  RandomCropOptions options_;
};

struct RandomResizedCropOptions {
  std::optional<std::array<std::int64_t, 2>> size{};
  std::array<double, 2> scale{0.08, 1};
  std::array<double, 2> ratio{3.0 / 4, 4.0 / 3};
  bool antialias = true;

  static constexpr auto fields = kindling::fields(
      kindling::field("size", &RandomResizedCropOptions::size,
                      {.doc = "height and width of the result in pixels", .min = 1, .example = "[224, 224]"}),
      kindling::field("scale", &RandomResizedCropOptions::scale,
                      {.doc = "smallest and largest area of the crop, as fractions of the image",
                       .min = 0,
                       .max = 1,
                       .min_excluded = true}),
      kindling::field(
          "ratio", &RandomResizedCropOptions::ratio,
          {.doc = "smallest and largest width / height of the crop", .min = 0, .min_excluded = true}),
      kindling::field("antialias", &RandomResizedCropOptions::antialias,
                      {.doc = "average over all pixels when shrinking, as PIL does"}));
};

// Cuts a rectangle of random area and aspect ratio out of the image and resizes it bilinearly to [size], as
// torchvision's RandomResizedCrop does: of ten random rectangles, the first that fits into the image, else
// the largest central one within `ratio`. Integer masks take the nearest pixel, as Resize does. Random
// numbers: ten areas, ten ratios, top, left.
class KINDLING_API RandomResizedCrop : public Transform {
 public:
  // Throws ConfigError if `size` is missing, an option is out of range or a range is reversed.
  explicit RandomResizedCrop(RandomResizedCropOptions options);
  std::int64_t num_random() const override;
  Batch apply(Batch batch, const at::Tensor& uniforms) const override;

 private:
  RandomResizedCropOptions options_;
};

struct ResizeOptions {
  std::optional<std::array<std::int64_t, 2>> size{};
  bool antialias = true;

  static constexpr auto fields = kindling::fields(
      kindling::field("size", &ResizeOptions::size,
                      {.doc = "height and width of the result in pixels", .min = 1, .example = "[32, 32]"}),
      kindling::field("antialias", &ResizeOptions::antialias,
                      {.doc = "average over all pixels when shrinking, as PIL does"}));
};

// Resizes images bilinearly to [size]. Deterministic. Of masks of integers and booleans it takes the nearest
// pixel, by the centres of the pixels as PIL does (PyTorch's "nearest-exact").
class KINDLING_API Resize : public Transform {
 public:
  // Throws ConfigError if `size` is missing or out of range.
  explicit Resize(ResizeOptions options);
  Batch apply(Batch batch, const at::Tensor& uniforms) const override;

 private:
  ResizeOptions options_;
};

}  // namespace kindling
