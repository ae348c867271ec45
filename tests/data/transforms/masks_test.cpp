// Masks that travel with images: which tensors move, and where their pixels come from.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "data/transforms/every_transform.h"
#include "kindling/base/error.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

constexpr std::int64_t kSamples = 12, kHeight = 8, kWidth = 10, kNumPixels = kHeight * kWidth;

class Masks : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    at::manual_seed(5);
  }
  at::Tensor uniforms_of(const Transform& transform) const {
    return at::rand({kSamples, transform.num_random()}, at::kDouble).to(device_);
  }
  // Each pixel has another number, from 1 on: a mask then shows where its pixels come from.
  at::Tensor numbered_pixels() const {
    return at::arange(1, kSamples * kNumPixels + 1).view({kSamples, 1, kHeight, kWidth}).to(device_);
  }
};
KINDLING_RUN_ON_DEVICES(Masks);

std::vector<NamedTransform> transforms_that_copy_pixels() {
  const auto make = [](auto transform) {
    return std::make_shared<decltype(transform)>(std::move(transform));
  };
  return {{"flip", make(RandomHorizontalFlip())},
          {"crop", make(RandomCrop({.size = {{7, 6}}, .padding = 2, .fill = -1, .mask_fill = -1}))},
          {"crop edge", make(RandomCrop({.size = {{9, 6}}, .padding = 3, .padding_mode = "edge"}))},
          {"crop reflect", make(RandomCrop({.size = {{9, 12}}, .padding = 3, .padding_mode = "reflect"}))},
          {"affine", make(RandomAffine({.degrees = {-40, 40},
                                        .translate = {0.2, 0.3},
                                        .scale = {0.7, 1.4},
                                        .fill = -1,
                                        .mask_fill = -1}))},
          // Each pixel comes from the middle of four, so that rounding decides.
          {"affine of ties", make(RandomAffine({.scale = {0.5, 0.5}, .fill = -1, .mask_fill = -1}))},
          {"cut_mix", std::make_shared<CutMix>(MixOptions{})}};
}

TEST_P(Masks, TakeTheirPixelsFromWhereTheImagesTakeThem) {
  for (const auto& [name, transform] : transforms_that_copy_pixels()) {
    const at::Tensor numbers = numbered_pixels(), more = at::stack({numbers, -numbers}, 1);
    const Batch batch{numbers.to(at::kFloat), numbers.squeeze(1), more, numbers.to(at::kDouble),
                      numbers.squeeze(1).to(at::kInt)};
    const Batch out = transform->apply(batch, uniforms_of(*transform));
    const at::Tensor moved = out[0].to(at::kLong);
    EXPECT_FALSE(moved.equal(numbers)) << name;
    EXPECT_TRUE(same(out[1], moved.squeeze(1))) << name;
    const at::Tensor negative = at::where(moved == -1, moved, -moved);  // the padding stays -1
    EXPECT_TRUE(same(out[2], at::stack({moved, negative}, 1))) << name;
    EXPECT_TRUE(same(out[3], moved.to(at::kDouble))) << name;
    EXPECT_TRUE(same(out[4], moved.squeeze(1).to(at::kInt))) << name;
  }
}

// No float32 can hold 2⁴⁰ + 1.
TEST_P(Masks, KeepTheirDtypeAndLargeIntegers) {
  const RandomAffine affine({.degrees = {-40, 40}});
  const at::Tensor numbers = numbered_pixels().squeeze(1), large = numbers + (std::int64_t{1} << 40);
  const at::Tensor images = at::zeros({kSamples, 1, kHeight, kWidth}).to(device_);
  const Batch out = affine.apply({images, numbers, large, numbers > 0}, uniforms_of(affine));
  EXPECT_TRUE(same(out[2], at::where(out[1] == 0, out[1], out[1] + (std::int64_t{1} << 40))));
  EXPECT_TRUE(same(out[3], out[1] > 0));
}

TEST_P(Masks, OfFloatingPointAreInterpolatedAsTheImages) {
  for (const auto& [name, transform] : every_transform()) {
    if (name == "normalize" || name == "color_jitter" || name == "random_erasing" || name == "one_hot")
      continue;
    const at::Tensor images = at::rand({kSamples, 3, kHeight, kWidth}).to(device_);
    const at::Tensor zeros = at::zeros({kSamples, 4}).to(device_);
    const Batch out =
        transform->apply({images, images.clone(), images.select(1, 1), zeros}, uniforms_of(*transform));
    if (name == "random_crop" || name == "random_affine") {  // with another fill outside
      EXPECT_FALSE(out[1].equal(images)) << name;
      continue;
    }
    EXPECT_TRUE(same_on_cpu(out[1], out[0])) << name;
    EXPECT_TRUE(same_on_cpu(out[2], out[0].select(1, 1))) << name;
    EXPECT_TRUE(same(out[3], zeros)) << name;
  }
}

TEST_P(Masks, OfIntegersAreResizedToTheNearestPixel) {
  const at::Tensor numbers = numbered_pixels();
  const at::Tensor images = at::zeros({kSamples, 1, kHeight, kWidth}).to(device_);
  for (const std::array<std::int64_t, 2> size : {std::array<std::int64_t, 2>{4, 13}, {17, 7}}) {
    const Batch resized = Resize({.size = size}).apply({images, numbers.squeeze(1)}, {});
    const at::Tensor expected =
        at::_upsample_nearest_exact2d(numbers.cpu().to(at::kDouble), size).to(at::kLong).squeeze(1);
    EXPECT_TRUE(same(resized[1], expected));
    // A box as large as the image.
    const RandomResizedCrop whole({.size = size, .scale = {1, 1}, .ratio = {1.25, 1.25}});
    EXPECT_TRUE(same(whole.apply({images, numbers.squeeze(1)}, uniforms_of(whole))[1], expected));
    // Bilinear interpolation of a gradient shows the centre of each pixel, and so does the nearest one.
    const RandomResizedCrop crop({.size = size, .antialias = false});
    const at::Tensor columns =
        at::arange(kWidth).view({1, 1, 1, kWidth}).expand({kSamples, 1, kHeight, kWidth});
    const Batch out =
        crop.apply({columns.to(at::kFloat).to(device_), columns.to(device_)}, uniforms_of(crop));
    EXPECT_LE((out[1].to(at::kFloat) - out[0]).abs().max().item<double>(), 0.5 + 1e-5);
  }
}

TEST_P(Masks, AreLeftAloneByTransformsOfValues) {
  const at::Tensor numbers = numbered_pixels(), labels = at::zeros({kSamples}, at::kLong).to(device_);
  for (const auto& [name, transform] : every_transform()) {
    if (name != "normalize" && name != "color_jitter" && name != "random_erasing" && name != "one_hot")
      continue;
    const Batch out = transform->apply(
        {at::rand({kSamples, 3, kHeight, kWidth}).to(device_), numbers, labels}, uniforms_of(*transform));
    EXPECT_TRUE(same(out[1], numbers)) << name;
  }
}

TEST_P(Masks, AreMixedNextToLabels) {
  const at::Tensor images = at::rand({kSamples, 1, kHeight, kWidth}).to(device_);
  const at::Tensor labels = at::arange(kSamples).remainder(10).to(device_);
  for (const auto& [name, transform] : every_transform()) {
    if (name != "mix_up" && name != "cut_mix") continue;
    const at::Tensor uniforms = uniforms_of(*transform);
    const Batch out = transform->apply({images, images.clone(), labels}, uniforms);
    EXPECT_TRUE(same_on_cpu(out[1], out[0])) << name;
    EXPECT_TRUE(same(out[2], transform->apply({images, labels}, uniforms)[1])) << name;
  }
}

TEST(MaskErrors, SayWhichTensorsMove) {
  const at::Tensor images = at::zeros({2, 3, 4, 5}), uniforms = at::zeros({2, 1});
  const std::string expected =
      ", and the images are Float [2, 3, 4, 5]; expected: a mask or other images with the same height and "
      "width, [batch, height, width] or [batch, channels, height, width], whose pixels move with those of "
      "the images, or values without pixels, [batch] or [batch, values], which stay as they are; resize "
      "masks to the images and flatten other values in the data module, or derive from kindling::Transform";
  const auto error_of = [&](const at::Tensor& mask) {
    return error_text<DataError>([&] { RandomHorizontalFlip().apply({images, mask}, uniforms); });
  };
  EXPECT_EQ(error_of(at::zeros({2, 2, 2}, at::kLong)),
            "random_horizontal_flip: tensor 1 of the batch is Long [2, 2, 2]" + expected);
  EXPECT_EQ(error_of(at::zeros({2, 4, 5, 3})),
            "random_horizontal_flip: tensor 1 of the batch is Float [2, 4, 5, 3]" + expected);
}

TEST(MaskErrors, NameAFillThatAMaskCannotHold) {
  const at::Tensor images = at::zeros({2, 3, 4, 5}), uniforms = at::zeros({2, 4});
  const auto error_of = [&](double fill, at::ScalarType dtype) {
    return error_text<DataError>([&] {
      RandomAffine({.mask_fill = fill}).apply({images, at::zeros({2, 4, 5}, dtype)}, uniforms);
    });
  };
  EXPECT_EQ(error_of(0.5, at::kLong),
            "random_affine: mask_fill: it is 0.5, and a mask has the dtype Long; expected: a value that the "
            "mask can hold; a class number, such as that of the background");
  for (const auto& [fill, dtype] :
       {std::pair{256., at::kByte}, {-1., at::kByte}, {128., at::kChar}, {2., at::kBool}})
    EXPECT_NE(error_of(fill, dtype).find("a value that the mask can hold"), std::string::npos) << fill;
  EXPECT_NO_THROW(
      RandomAffine({.mask_fill = -100}).apply({images, at::zeros({2, 4, 5}, at::kLong)}, uniforms));
}

TEST(MaskErrors, SayThatClassNumbersHaveNoMean) {
  const at::Tensor images = at::zeros({2, 3, 4, 5}), uniforms = at::zeros({2, 2});
  EXPECT_EQ(
      error_text<DataError>([&] {
        MixUp().apply({images, at::zeros({2, 4, 5}, at::kLong)}, uniforms);
      }),
      "mix_up: a mask of the batch has the dtype Long; expected: floating-point masks, because class "
      "numbers have no mean; use cut_mix, or convert the mask to probabilities [batch, classes, height, "
      "width] in the data module");
}

}  // namespace
}  // namespace kindling
