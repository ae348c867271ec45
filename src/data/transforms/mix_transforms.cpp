#include "kindling/data/mix_transforms.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "data/transforms/device_constant.h"
#include "data/transforms/random_numbers.h"
#include "kindling/base/error.h"
#include "tensors/shape_text.h"

namespace kindling {
namespace {

// at::one_hot reads the labels on the host to check them.
at::Tensor one_hot_labels(const at::Tensor& labels, std::int64_t num_classes, const char* place) {
  if (labels.dim() != 1 || !at::isIntegralType(labels.scalar_type(), /*includeBool=*/false))
    throw DataError({.place = place,
                     .found = "the labels are " + type_text(labels),
                     .wanted = "class numbers, integers [batch]"});
  return (labels.unsqueeze(1) == positions(num_classes, {1, num_classes}, labels)).to(at::kFloat);
}

at::Tensor label_probabilities(const at::Tensor& labels, std::int64_t num_classes, const char* place) {
  if (labels.is_floating_point() && labels.dim() == 2) return labels;
  if (labels.dim() == 2 && labels.size(1) == num_classes) return labels.to(at::kFloat);  // several per image
  return one_hot_labels(labels, num_classes, place);
}

// Returns for each sample the next one in the order of their random numbers, int64 [batch].
at::Tensor partners(const at::Tensor& order) {
  const at::Tensor sorted = at::argsort(order, /*stable=*/true);
  return at::empty_like(sorted).scatter_(0, sorted, sorted.roll(-1));
}

// Returns weight · sample + (1 - weight) · partner.
at::Tensor mixed(const at::Tensor& samples, const at::Tensor& partner, const at::Tensor& weight) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(samples.dim()), 1);
  shape[0] = -1;
  const at::Tensor of_sample = weight.view(shape).to(samples.scalar_type());
  return samples * of_sample + samples.index_select(0, partner) * (1 - of_sample);
}

// Returns the mixed labels. Masks as labels are mixed with their images before.
at::Tensor mixed_labels(const Batch& batch, const at::Tensor& partner, const at::Tensor& weight,
                        std::int64_t num_classes, const char* place) {
  if (batch.tensors().size() < 2)
    throw DataError(
        {.place = place,
         .found = "the batch has images alone",
         .wanted = "labels, which are mixed with their images",
         .remedy = std::string("remove ") + place + " from the transforms of data without labels"});
  if (batch.labels().dim() >= 3) return batch.labels();
  return mixed(label_probabilities(batch.labels(), num_classes, place), partner, weight);
}

// One axis of the pasted rectangles, [batch]: the first pixel and the one after the last.
struct Span {
  at::Tensor first, end;
};

// torchvision's formulas: a whole centre, a whole half width, cut at the border.
Span pasted_span(const at::Tensor& uniforms, const at::Tensor& weight, std::int64_t size) {
  const at::Tensor center = uniform_index(uniforms, size);
  const at::Tensor half = ((1 - weight).sqrt() * (0.5 * static_cast<double>(size))).floor();
  return {(center - half).clamp_min(0), (center + half).clamp_max(size)};
}

constexpr int kCells = 4096;

// The continued fraction of the incomplete beta function by Lentz's method (Press et al., "Numerical
// Recipes", section 6.4). Converges quickly for x < (a + 1) / (2a + 2), that is x < 1/2.
double beta_fraction(double a, double x) {
  constexpr double kTiny = 1e-300;
  const auto bounded = [](double value) { return std::abs(value) < kTiny ? kTiny : value; };
  double c = 1, d = 1 / bounded(1 - 2 * a * x / (a + 1)), result = d;
  for (int m = 1; m <= 500; ++m) {
    const double even = m * (a - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / bounded(1 + even * d);
    c = bounded(1 + even / c);
    result *= d * c;
    const double odd = -(a + m) * (2 * a + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / bounded(1 + odd * d);
    c = bounded(1 + odd / c);
    result *= d * c;
    if (std::abs(d * c - 1) < 1e-15) break;
  }
  return result;
}

// Returns the distribution function of Beta(a, a) at x in [0, 1/2].
double lower_half_cdf(double a, double x) {
  if (x <= 0) return 0;
  const double log_front = std::lgamma(2 * a) - 2 * std::lgamma(a) + a * std::log(x) + a * std::log1p(-x);
  return std::exp(log_front) * beta_fraction(a, x) / a;
}

// Returns x in [0, 1/2] with the probability p <= 1/2, to the precision of a double.
double lower_half_quantile(double a, double p) {
  // Bisection of the logarithm: for a small alpha, quantiles are as small as 1e-300.
  double low = -700, high = std::log(0.5);
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (lower_half_cdf(a, std::exp(middle)) < p ? low : high) = middle;
  }
  return std::exp((low + high) / 2);
}

at::Tensor beta_table(double alpha) {
  std::vector<double> table(kCells + 1, 0.5);
  table[0] = 0;
  table[kCells] = 1;
  for (int i = 1; i < kCells / 2; ++i) {
    table[i] = lower_half_quantile(alpha, static_cast<double>(i) / kCells);
    table[kCells - i] = 1 - table[i];
  }
  return at::tensor(table, at::kDouble);
}

}  // namespace

// The inverse of the distribution function of Beta(alpha, alpha), by which uniform random numbers become such
// ones: a table of 4,097 points, linear in between. For alpha = 1, the numbers themselves.
class BetaQuantiles {
 public:
  explicit BetaQuantiles(double alpha);

  // Returns numbers in [0, 1] of the shape and dtype of `uniforms`.
  at::Tensor operator()(const at::Tensor& uniforms) const;

 private:
  bool is_uniform_;
  DeviceConstant table_;  // double [4097]
};

BetaQuantiles::BetaQuantiles(double alpha)
    : is_uniform_(alpha == 1), table_(is_uniform_ ? at::empty({0}, at::kDouble) : beta_table(alpha)) {}

at::Tensor BetaQuantiles::operator()(const at::Tensor& uniforms) const {
  if (is_uniform_) return uniforms;
  const at::Tensor table = table_.like(uniforms);
  const at::Tensor position = uniforms * kCells;
  const at::Tensor cell = position.floor().clamp_max(kCells - 1);
  const at::Tensor index = cell.to(at::kLong).flatten();
  const at::Tensor below = table.index_select(0, index).view_as(cell);
  const at::Tensor above = table.index_select(0, index + 1).view_as(cell);
  return below + (position - cell) * (above - below);
}

OneHot::OneHot(OneHotOptions options) : options_(options) { validate(options, "one_hot"); }

Batch OneHot::apply(Batch batch, [[maybe_unused]] const at::Tensor& uniforms) const {
  batch.tensors().back() = one_hot_labels(batch.labels(), options_.num_classes, "one_hot");
  return batch;
}

MixUp::MixUp(MixOptions options) : options_(options) {
  validate(options, "mix_up");
  weights_ = std::make_unique<BetaQuantiles>(options.alpha);
}

MixUp::~MixUp() = default;

Batch MixUp::apply(Batch batch, const at::Tensor& uniforms) const {
  const at::Tensor images = checked_images(*this, "mix_up", batch, uniforms);
  const at::Tensor partner = partners(uniform_column(uniforms, 0));
  const at::Tensor weight = (*weights_)(uniform_column(uniforms, 1));
  batch = move_masks("mix_up", std::move(batch), [&](const at::Tensor& mask) {
    if (!mask.is_floating_point())
      throw DataError(
          {.place = "mix_up",
           .found = std::string("a mask of the batch has the dtype ") + c10::toString(mask.scalar_type()),
           .wanted = "floating-point masks, because class numbers have no mean",
           .remedy = "use cut_mix, or convert the mask to probabilities [batch, classes, height, "
                     "width] in the data module"});
    return mixed(mask, partner, weight);
  });
  const at::Tensor labels = mixed_labels(batch, partner, weight, options_.num_classes, "mix_up");
  batch.tensors().front() = mixed(images, partner, weight);
  batch.tensors().back() = labels;
  return batch;
}

CutMix::CutMix(MixOptions options) : options_(options) {
  validate(options, "cut_mix");
  weights_ = std::make_unique<BetaQuantiles>(options.alpha);
}

CutMix::~CutMix() = default;

Batch CutMix::apply(Batch batch, const at::Tensor& uniforms) const {
  const at::Tensor images = checked_images(*this, "cut_mix", batch, uniforms);
  const std::int64_t height = images.size(2), width = images.size(3);
  const at::Tensor partner = partners(uniform_column(uniforms, 0));
  const at::Tensor weight = (*weights_)(uniform_column(uniforms, 1));
  const Span x = pasted_span(uniform_column(uniforms, 2), weight, width);
  const Span y = pasted_span(uniform_column(uniforms, 3), weight, height);
  const at::Tensor kept = 1 - (x.end - x.first) * (y.end - y.first) / static_cast<double>(height * width);
  const at::Tensor rows = positions(height, {1, 1, height, 1}, uniforms);
  const at::Tensor columns = positions(width, {1, 1, 1, width}, uniforms);
  const at::Tensor pasted = (rows >= per_image(y.first)) & (rows < per_image(y.end)) &
                            (columns >= per_image(x.first)) & (columns < per_image(x.end));
  const auto with_pasted = [&](const at::Tensor& pixels) {
    return at::where(pasted, pixels.index_select(0, partner), pixels);
  };
  batch = move_masks("cut_mix", std::move(batch), with_pasted);
  const at::Tensor labels = mixed_labels(batch, partner, kept, options_.num_classes, "cut_mix");
  batch.tensors().front() = with_pasted(images);
  batch.tensors().back() = labels;
  return batch;
}

}  // namespace kindling
