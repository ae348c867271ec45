#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "data/transforms/every_transform.h"
#include "kindling/base/error.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

// Definitions are computed per sample with numbers on the host, in PyTorch's operators.
class Transforms : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    at::manual_seed(11);
  }
  // The images after the transform of [batch, …] images on the device.
  at::Tensor images_of(const Transform& transform, const at::Tensor& images,
                       const at::Tensor& uniforms) const {
    return applied(transform, {images}, uniforms)[0];
  }
  Batch applied(const Transform& transform, Batch batch, const at::Tensor& uniforms) const {
    for (at::Tensor& tensor : batch.tensors()) tensor = tensor.to(device_);
    const Batch out = transform.apply(batch, uniforms.defined() ? uniforms.to(device_) : uniforms);
    for (const at::Tensor& tensor : out.tensors()) EXPECT_EQ(tensor.device(), device_);
    return out;
  }
};
KINDLING_RUN_ON_DEVICES(Transforms);

double number(const at::Tensor& uniforms, std::int64_t sample, std::int64_t column) {
  return uniforms[sample][column].item<double>();
}

TEST_P(Transforms, NormalizeSubtractsAndDividesPerChannel) {
  const at::Tensor images = at::tensor({1.f, 2.f, 3.f, 5.f}).view({1, 2, 1, 2});
  EXPECT_TRUE(close(images_of(Normalize({{1, 2}, {2, 4}}), images, {}),
                    at::tensor({0.f, 0.5f, 0.25f, 0.75f}).view({1, 2, 1, 2}), 1e-6));
  EXPECT_TRUE(close(images_of(Normalize({{1}, {2}}), images, {}),
                    at::tensor({0.f, 0.5f, 1.f, 2.f}).view({1, 2, 1, 2}), 1e-6));
}

TEST_P(Transforms, RandomCropCutsThePaddedImageAtItsRandomCorner) {
  const at::Tensor images = at::rand({9, 2, 8, 10}), uniforms = at::rand({9, 2}, at::kDouble);
  for (const auto& [mode, name] :
       {std::pair{"constant", "constant"}, {"edge", "replicate"}, {"reflect", "reflect"}}) {
    const RandomCrop crop({.size = {{6, 5}}, .padding = 3, .fill = 0.5, .padding_mode = mode});
    const at::Tensor out = images_of(crop, images, uniforms);
    const bool is_constant = std::string(mode) == "constant";
    const at::Tensor padded =
        at::pad(images, {3, 3, 3, 3}, name, is_constant ? std::optional<double>(0.5) : std::nullopt);
    for (std::int64_t i = 0; i < 9; ++i) {
      const auto top = static_cast<std::int64_t>(number(uniforms, i, 0) * (14 - 6 + 1));
      const auto left = static_cast<std::int64_t>(number(uniforms, i, 1) * (16 - 5 + 1));
      EXPECT_TRUE(same(out[i], padded[i].narrow(1, top, 6).narrow(2, left, 5))) << mode << i;
    }
  }
}

TEST_P(Transforms, RandomCropReachesBothBorders) {
  const at::Tensor images = at::arange(4, at::kFloat).view({1, 1, 2, 2}).expand({2, 1, 2, 2});
  // The largest number below 1 in float32; multiplied by 2 it stays below 2.
  const at::Tensor uniforms = at::tensor({0.f, 0.f, 0.99999994f, 0.99999994f}).view({2, 2});
  EXPECT_TRUE(
      same(images_of(RandomCrop({.size = {{1, 1}}}), images, uniforms).flatten(), at::tensor({0.f, 3.f})));
}

// torchvision's RandomResizedCrop.get_params and RandomErasing.get_params.
struct Box {
  std::int64_t top, left, height, width;
};
std::optional<Box> first_box(const at::Tensor& uniforms, std::int64_t i, std::array<std::int64_t, 2> image,
                             std::array<double, 2> scale, std::array<double, 2> ratio, bool is_erasing) {
  const auto between = [&](std::int64_t column, double low, double high) {
    return low + (high - low) * number(uniforms, i, column);
  };
  for (int each = 0; each < 10; ++each) {
    const double area = static_cast<double>(image[0] * image[1]) * between(each, scale[0], scale[1]);
    const double aspect = std::exp(between(10 + each, std::log(ratio[0]), std::log(ratio[1])));
    auto longer = static_cast<std::int64_t>(std::nearbyint(std::sqrt(area * aspect)));
    auto other = static_cast<std::int64_t>(std::nearbyint(std::sqrt(area / aspect)));
    const std::int64_t height = is_erasing ? longer : other, width = is_erasing ? other : longer;
    const bool fits = is_erasing ? height < image[0] && width < image[1]
                                 : height > 0 && height <= image[0] && width > 0 && width <= image[1];
    if (!fits) continue;
    const auto top =
        static_cast<std::int64_t>(number(uniforms, i, 20) * static_cast<double>(image[0] - height + 1));
    const auto left =
        static_cast<std::int64_t>(number(uniforms, i, 21) * static_cast<double>(image[1] - width + 1));
    return Box{top, left, height, width};
  }
  return std::nullopt;
}

TEST_P(Transforms, RandomResizedCropResizesTheFirstFittingBox) {
  const at::Tensor images = at::rand({16, 3, 20, 30}), uniforms = at::rand({16, 22}, at::kDouble);
  for (const bool antialias : {true, false}) {
    const at::Tensor out =
        images_of(RandomResizedCrop({.size = {{9, 12}}, .antialias = antialias}), images, uniforms);
    for (std::int64_t i = 0; i < 16; ++i) {
      const Box box =
          first_box(uniforms, i, {20, 30}, {0.08, 1}, {3.0 / 4, 4.0 / 3}, false).value_or(Box{0, 0, 20, 27});
      const at::Tensor part =
          images.narrow(0, i, 1).narrow(2, box.top, box.height).narrow(3, box.left, box.width);
      const at::Tensor expected = antialias ? at::_upsample_bilinear2d_aa(part, {9, 12}, false)
                                            : at::upsample_bilinear2d(part, {9, 12}, false);
      EXPECT_TRUE(close(out.narrow(0, i, 1), expected, 2e-6)) << i << antialias;
    }
  }
}

TEST_P(Transforms, RandomResizedCropFallsBackToTheCentre) {
  // A crop as large as the image cannot be square.
  const at::Tensor images = at::rand({2, 1, 4, 10}), uniforms = at::rand({2, 22}, at::kDouble);
  const RandomResizedCrop crop({.size = {{4, 4}}, .scale = {1, 1}, .ratio = {1, 1}});
  EXPECT_TRUE(close(images_of(crop, images, uniforms), images.narrow(3, 3, 4), 1e-6));
  const at::Tensor tall = images.transpose(2, 3).contiguous();
  EXPECT_TRUE(close(images_of(crop, tall, uniforms), tall.narrow(2, 3, 4), 1e-6));
}

TEST_P(Transforms, RandomHorizontalFlipMirrorsBelowP) {
  const at::Tensor images = at::rand({3, 2, 2, 5}), uniforms = at::tensor({0.1, 0.3, 0.9}).view({3, 1});
  const at::Tensor out = images_of(RandomHorizontalFlip({.p = 0.3}), images, uniforms);
  EXPECT_TRUE(same(out[0], images[0].flip({2})));
  EXPECT_TRUE(same(out[1], images[1]));
  EXPECT_TRUE(same(out[2], images[2]));
}

TEST_P(Transforms, RandomAffineRotatesClockwiseByQuarterTurns) {
  const at::Tensor images = at::arange(9, at::kFloat).view({1, 1, 3, 3});
  const at::Tensor half = at::full({1, 4}, 0.5, at::kDouble);
  // Torchvision's affine(angle=90) is torch.rot90(k=-1).
  EXPECT_TRUE(same(images_of(RandomAffine({.degrees = {90, 90}}), images, half),
                   at::tensor({6.f, 3.f, 0.f, 7.f, 4.f, 1.f, 8.f, 5.f, 2.f}).view({1, 1, 3, 3})));
}

TEST_P(Transforms, RandomAffineShiftsByWholePixelsAndFills) {
  const at::Tensor images = at::arange(1, 10, at::kFloat).view({1, 1, 3, 3});
  // 0.9 of ±1.2 pixels along x is 0.96, rounded to 1; y stays.
  const at::Tensor uniforms = at::tensor({0.5, 0.9, 0.5, 0.5}).view({1, 4});
  const RandomAffine shift({.translate = {0.4, 0.4}, .fill = 7});
  EXPECT_TRUE(same(images_of(shift, images, uniforms),
                   at::tensor({7.f, 1.f, 2.f, 7.f, 4.f, 5.f, 7.f, 7.f, 8.f}).view({1, 1, 3, 3})));
}

TEST_P(Transforms, RandomAffineInterpolatesAtTheInverseCoordinates) {
  const at::Tensor images = at::rand({5, 1, 6, 9}), uniforms = at::rand({5, 4}, at::kDouble);
  const RandomAffine affine(
      {.degrees = {-40, 40}, .translate = {0.1, 0.2}, .scale = {0.5, 2}, .interpolation = "bilinear"});
  const at::Tensor out = images_of(affine, images, uniforms).cpu();
  const auto pixel = [&](std::int64_t i, double y, double x) {
    return y < 0 || y > 5 || x < 0 || x > 8
               ? 0.0
               : images[i][0][static_cast<std::int64_t>(y)][static_cast<std::int64_t>(x)].item<double>();
  };
  for (std::int64_t i = 0; i < 5; ++i) {
    const double angle = (-40 + 80 * number(uniforms, i, 0)) * std::numbers::pi / 180;
    const double shift_x = std::nearbyint((2 * number(uniforms, i, 1) - 1) * 0.1 * 9);
    const double shift_y = std::nearbyint((2 * number(uniforms, i, 2) - 1) * 0.2 * 6);
    const double scale = 0.5 + 1.5 * number(uniforms, i, 3);
    for (int row = 0; row < 6; ++row)
      for (int column = 0; column < 9; ++column) {
        const double dx = column - 4 - shift_x, dy = row - 2.5 - shift_y;
        const double x = (std::cos(angle) * dx + std::sin(angle) * dy) / scale + 4;
        const double y = (-std::sin(angle) * dx + std::cos(angle) * dy) / scale + 2.5;
        const double x0 = std::floor(x), y0 = std::floor(y), fx = x - x0, fy = y - y0;
        const double expected = (pixel(i, y0, x0) * (1 - fx) + pixel(i, y0, x0 + 1) * fx) * (1 - fy) +
                                (pixel(i, y0 + 1, x0) * (1 - fx) + pixel(i, y0 + 1, x0 + 1) * fx) * fy;
        // Coordinates of up to 9 pixels in float32 have errors of about 1e-6.
        EXPECT_NEAR(out[i][0][row][column].item<double>(), expected, 5e-6) << i << row << column;
      }
  }
}

TEST_P(Transforms, RandomErasingOverwritesTheFirstFittingBoxBelowP) {
  const at::Tensor images = at::rand({20, 2, 9, 12}), uniforms = at::rand({20, 23}, at::kDouble);
  const at::Tensor out = images_of(RandomErasing({.p = 0.6, .value = 5}), images, uniforms);
  for (std::int64_t i = 0; i < 20; ++i) {
    at::Tensor expected = images[i].clone();
    const auto box = first_box(uniforms, i, {9, 12}, {0.02, 0.33}, {0.3, 3.3}, true);
    if (box && number(uniforms, i, 22) < 0.6)
      expected.narrow(1, box->top, box->height).narrow(2, box->left, box->width).fill_(5);
    EXPECT_TRUE(same(out[i], expected)) << i;
  }
}

// torchvision's formulas for one image [channels, height, width].
at::Tensor blended_by_hand(const at::Tensor& image, const at::Tensor& other, double factor) {
  return (factor * image + (1 - factor) * other).clamp(0, 1);
}
at::Tensor grey_by_hand(const at::Tensor& image) {
  return (0.2989 * image[0] + 0.587 * image[1] + 0.114 * image[2]).unsqueeze(0);
}

at::Tensor hue_shifted_by_hand(const at::Tensor& image, double turns) {
  at::Tensor out = at::empty_like(image);
  for (std::int64_t y = 0; y < image.size(1); ++y)
    for (std::int64_t x = 0; x < image.size(2); ++x) {
      const double r = image[0][y][x].item<double>(), g = image[1][y][x].item<double>(),
                   b = image[2][y][x].item<double>();
      const double largest = std::max({r, g, b}), range = largest - std::min({r, g, b});
      const double s = largest == 0 ? 0 : range / largest, divisor = range == 0 ? 1 : range;
      double h = largest == r   ? (g - b) / divisor
                 : largest == g ? 2 + (b - r) / divisor
                                : 4 + (r - g) / divisor;
      h = std::fmod(h / 6 + 1 + turns + 1, 1.0);
      const int sector = static_cast<int>(std::floor(h * 6));
      const double f = h * 6 - sector, v = largest, p = v * (1 - s), q = v * (1 - s * f),
                   t = v * (1 - s * (1 - f));
      const double table[6][3] = {{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v}, {t, p, v}, {v, p, q}};
      for (int channel = 0; channel < 3; ++channel) out[channel][y][x] = table[sector % 6][channel];
    }
  return out;
}

TEST_P(Transforms, ColorJitterAppliesItsFourStepsInOrder) {
  const at::Tensor images = at::rand({6, 3, 4, 5}), uniforms = at::rand({6, 4}, at::kDouble);
  images[0].fill_(0.25);                                 // grey has no hue
  images[1].select(0, 0).copy_(images[1].select(0, 1));  // two largest channels
  const ColorJitter jitter({.brightness = 0.4, .contrast = 1.5, .saturation = 0.3, .hue = 0.5});
  const at::Tensor out = images_of(jitter, images, uniforms);
  for (std::int64_t i = 0; i < 6; ++i) {
    at::Tensor image = (images[i] * (0.6 + 0.8 * number(uniforms, i, 0))).clamp(0, 1);
    image = blended_by_hand(image, grey_by_hand(image).mean(), 2.5 * number(uniforms, i, 1));
    image = blended_by_hand(image, grey_by_hand(image), 0.7 + 0.6 * number(uniforms, i, 2));
    image = hue_shifted_by_hand(image, number(uniforms, i, 3) - 0.5);
    // Shifting a hue multiplies the rounding of the channels by 6 and more.
    EXPECT_TRUE(close(out[i], image, i == 0 ? 1e-6 : 5e-6)) << i;
  }
}

TEST_P(Transforms, ColorJitterChangesBrightnessAndContrastOfGreyImages) {
  const at::Tensor images = at::tensor({0.2f, 0.6f}).view({1, 1, 1, 2});
  const at::Tensor uniforms = at::tensor({1.0, 0.0, 0.5, 0.9}, at::kDouble).view({1, 4});
  const ColorJitter jitter({.brightness = 0.5, .contrast = 0.5, .saturation = 1, .hue = 0.5});
  // 1.5 · {0.2, 0.6} = {0.3, 0.9}; half of the distance from the mean 0.6.
  EXPECT_TRUE(
      close(images_of(jitter, images, uniforms), at::tensor({0.45f, 0.75f}).view({1, 1, 1, 2}), 1e-6));
}

TEST_P(Transforms, ResizeIsPyTorchs) {
  const at::Tensor images = at::rand({2, 3, 8, 6});
  EXPECT_TRUE(close(images_of(Resize({.size = {{4, 9}}}), images, {}),
                    at::_upsample_bilinear2d_aa(images, {4, 9}, false), 1e-6));
  EXPECT_TRUE(close(images_of(Resize({.size = {{4, 9}}, .antialias = false}), images, {}),
                    at::upsample_bilinear2d(images, {4, 9}, false), 1e-6));
}

TEST_P(Transforms, OneHotHasAOneAtTheLabel) {
  const Batch out =
      applied(OneHot({.num_classes = 3}), {at::zeros({4, 1}), at::tensor({2, 0, 1, 7}, at::kLong)}, {});
  EXPECT_TRUE(
      same(out[1], at::tensor({0.f, 0.f, 1.f, 1.f, 0.f, 0.f, 0.f, 1.f, 0.f, 0.f, 0.f, 0.f}).view({4, 3})));
}

TEST_P(Transforms, MixUpMixesWithTheNextInRandomOrder) {
  const at::Tensor images = at::rand({3, 1, 2, 2}), labels = at::tensor({0, 1, 2}, at::kLong);
  // In the order 1, 2, 0: 1 is mixed with 2, 2 with 0 and 0 with 1.
  const at::Tensor uniforms = at::tensor({0.9, 0.25, 0.1, 0.5, 0.4, 1.0}, at::kDouble).view({3, 2});
  const Batch out = applied(MixUp({.num_classes = 3}), {images, labels}, uniforms);
  EXPECT_TRUE(close(out[0][0], 0.25 * images[0] + 0.75 * images[1], 1e-6));
  EXPECT_TRUE(close(out[0][1], 0.5 * images[1] + 0.5 * images[2], 1e-6));
  EXPECT_TRUE(close(out[0][2], images[2], 1e-6));
  EXPECT_TRUE(
      close(out[1], at::tensor({0.25f, 0.75f, 0.f, 0.f, 0.5f, 0.5f, 0.f, 0.f, 1.f}).view({3, 3}), 1e-6));
}

TEST_P(Transforms, MixUpTakesProbabilities) {
  const at::Tensor images = at::rand({2, 1, 1, 1}), labels = at::rand({2, 4});
  const at::Tensor uniforms = at::tensor({0.1, 0.25, 0.2, 0.75}, at::kDouble).view({2, 2});
  const Batch out = applied(MixUp({.num_classes = 99}), {images, labels}, uniforms);
  EXPECT_TRUE(close(out[1][0], 0.25 * labels[0] + 0.75 * labels[1], 1e-6));
  EXPECT_TRUE(close(out[1][1], 0.75 * labels[1] + 0.25 * labels[0], 1e-6));
}

TEST_P(Transforms, CutMixPastesTheRectangleAndMixesByArea) {
  const at::Tensor images = at::rand({2, 2, 8, 12}), labels = at::tensor({1, 0}, at::kLong);
  // Weight 3/4: half of each side, so 4 x 6 pixels, around row 4 and column 3; the other is cut at the
  // corner.
  const at::Tensor uniforms =
      at::tensor({0.1, 0.75, 0.25, 0.5, 0.2, 0.75, 0.99, 0.99}, at::kDouble).view({2, 4});
  const Batch out = applied(CutMix({.num_classes = 2}), {images, labels}, uniforms);
  at::Tensor first = images[0].clone(), second = images[1].clone();
  first.narrow(1, 2, 4).narrow(2, 0, 6).copy_(images[1].narrow(1, 2, 4).narrow(2, 0, 6));
  second.narrow(1, 5, 3).narrow(2, 8, 4).copy_(images[0].narrow(1, 5, 3).narrow(2, 8, 4));
  EXPECT_TRUE(same(out[0][0], first));
  EXPECT_TRUE(same(out[0][1], second));
  EXPECT_TRUE(close(out[1], at::tensor({0.25f, 0.75f, 0.875f, 0.125f}).view({2, 2}), 1e-6));
}

TEST_P(Transforms, MixWeightsHaveABetaDistribution) {
  const at::Tensor images = at::tensor({1.f, 0.f}).view({2, 1, 1, 1}), labels = at::tensor({0, 1}, at::kLong);
  struct Case {
    double alpha, p, quantile;
  };
  // From scipy.stats.beta.ppf. 0.3 is between two numbers of the table; there, sin(27 degrees) squared.
  for (const auto& [alpha, p, quantile] : {Case{0.2, 0.125, 0.00075586165}, Case{0.5, 0.125, 0.03806023},
                                           Case{2.0, 0.125, 0.22106265}, Case{0.5, 0.3, 0.20610737}}) {
    const at::Tensor uniforms = at::tensor({0.1, p, 0.2, 1 - p}, at::kDouble).view({2, 2});
    const at::Tensor out = applied(MixUp({.alpha = alpha}), {images, labels}, uniforms)[0].cpu().flatten();
    EXPECT_NEAR(out[0].item<double>(), quantile, 1e-6) << alpha;
    EXPECT_NEAR(out[1].item<double>(), quantile, 1e-6) << alpha;  // 1 - (1 - quantile)
  }
}

TEST_P(Transforms, ResultsMoveWithTheSamples) {
  for (const auto& [name, transform] : every_transform()) {
    const TransformCase all(*transform);
    const at::Tensor order = at::randperm(12);
    const Batch plain = applied(*transform, {all.images, all.labels}, all.uniforms);
    const Batch permuted = applied(*transform, {all.images.index({order}), all.labels.index({order})},
                                   all.uniforms.index({order}));
    for (std::size_t i = 0; i < 2; ++i)
      EXPECT_TRUE(same(permuted[i], plain[i].cpu().index({order}))) << name << i;
  }
}

// What a sample becomes must not depend on the samples next to it, nor on the number of threads.
TEST_P(Transforms, ResultsDoNotDependOnTheBatchUnlessTheyMixIt) {
  const int threads = at::get_num_threads();
  for (const auto& [name, transform] : every_transform()) {
    if (name == "mix_up" || name == "cut_mix") continue;  // they mix samples of a batch
    for (const std::int64_t size : {8, 61}) {
      const at::Tensor images = at::rand({13, 3, size, size + 3}), labels = at::randint(10, {13}, at::kLong);
      const at::Tensor uniforms = at::rand({13, transform->num_random()}, at::kDouble);
      at::set_num_threads(2);
      const Batch whole = applied(*transform, {images, labels}, uniforms);
      for (const std::int64_t samples : {1, 4, 12}) {
        at::set_num_threads(samples == 4 ? 1 : 2);
        const Batch part = applied(*transform, {images.narrow(0, 1, samples), labels.narrow(0, 1, samples)},
                                   uniforms.narrow(0, 1, samples));
        for (std::size_t i = 0; i < 2; ++i)
          EXPECT_TRUE(same(part[i], whole[i].narrow(0, 1, samples))) << name << " " << size << " " << samples;
      }
    }
  }
  at::set_num_threads(threads);
}

TEST_P(Transforms, TakeRandomNumbersInFloat32AndImagesInFloat64) {
  for (const auto& [name, transform] : every_transform()) {
    const TransformCase all(*transform, at::kFloat);
    const Batch out = applied(*transform, {all.images.to(at::kDouble), all.labels}, all.uniforms);
    EXPECT_EQ(out[0].scalar_type(), at::kDouble) << name;
    EXPECT_EQ(out[0].size(0), 12) << name;
  }
}

TEST_P(Transforms, ComposeGivesEachItsColumns) {
  const auto flip = std::make_shared<RandomHorizontalFlip>();
  const auto crop = std::make_shared<RandomCrop>(RandomCropOptions{.size = {{3, 3}}});
  const auto scale = std::make_shared<Normalize>(NormalizeOptions{{0.5}, {0.5}});
  const Compose all({flip, scale, crop});
  EXPECT_EQ(all.num_random(), 3);
  const at::Tensor images = at::rand({4, 1, 5, 5}), uniforms = at::rand({4, 3});
  at::Tensor expected = images_of(*flip, images, uniforms.narrow(1, 0, 1));
  expected = images_of(*crop, images_of(*scale, expected, {}), uniforms.narrow(1, 1, 2));
  EXPECT_TRUE(same(images_of(all, images, uniforms), expected));
}

TEST(TransformErrors, NameTheTransformAndTheShapes) {
  const at::Tensor images = at::zeros({2, 3, 4, 4}), uniforms = at::zeros({2, 2});
  const RandomCrop crop({.size = {{5, 5}}});
  EXPECT_EQ(error_text<DataError>([&] { crop.apply({images}, uniforms); }),
            "random_crop: the images have 4 x 4 pixels with padding; expected: at least the crop, 5 x 5; a "
            "smaller size or more padding");
  EXPECT_EQ(error_text<DataError>([&] {
              crop.apply({images}, at::zeros({2, 1}));
            }),
            "random_crop: the random numbers are Float [2, 1]; expected: Float or Double [2, 2]");
  EXPECT_EQ(
      error_text<DataError>([&] {
        RandomCrop({.size = {{4, 4}}, .padding = 4, .padding_mode = "reflect"}).apply({images}, uniforms);
      }),
      "random_crop: the images have 4 x 4 pixels, and padding is 4; expected: with padding_mode = "
      "\"reflect\", padding smaller than the images");
  EXPECT_EQ(error_text<DataError>([&] { crop.apply({images}, {}); }),
            "random_crop: the random numbers are undefined; expected: Float or Double [2, 2]");
  EXPECT_EQ(
      error_text<DataError>([&] { crop.apply({images.to(at::kByte)}, uniforms); }),
      "random_crop: the images are Byte [2, 3, 4, 4]; expected: floating-point [batch, channels, height, "
      "width]; convert bytes before: images.to(torch::kFloat).div(255)");
  EXPECT_EQ(error_text<DataError>([&] {
              Normalize({{0, 0}, {1, 1}}).apply({images}, {});
            }),
            "normalize: the images have 3 channels; expected: 2, the length of mean and std");
  EXPECT_EQ(error_text<DataError>([&] {
              ColorJitter().apply({at::zeros({2, 2, 4, 4})}, at::zeros({2, 4}));
            }),
            "color_jitter: the images have 2 channels; expected: 1 (grey) or 3 (RGB)");
  EXPECT_EQ(error_text<DataError>([&] {
              OneHot().apply({images, at::zeros({2})}, {});
            }),
            "one_hot: the labels are Float [2]; expected: class numbers, integers [batch]");
}

TEST(TransformErrors, NameTheOption) {
  EXPECT_EQ(error_text<ConfigError>([] { RandomCrop({}); }),
            "random_crop: size: it is missing; expected: height and width in pixels; size = [32, 32]");
  EXPECT_EQ(error_text<ConfigError>([] {
              RandomAffine({.degrees = {5, -5}});
            }),
            "random_affine: degrees: it is [5, -5]; expected: the smaller number first");
  EXPECT_EQ(
      error_text<ConfigError>([] {
        Normalize({{0, 0}, {1}});
      }),
      "normalize: 2 numbers in mean, 1 in std; expected: one number per channel in both, or one for all "
      "channels");
  EXPECT_EQ(error_text<ConfigError>([] { Compose({nullptr}); }),
            "Compose: a transform is a null pointer; expected: transforms");
  EXPECT_THROW(MixUp({.alpha = 0}), ConfigError);
  EXPECT_THROW(Normalize({{0}, {0}}), ConfigError);
}

}  // namespace
}  // namespace kindling
