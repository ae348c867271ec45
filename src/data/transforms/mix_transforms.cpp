#include "kindling/data/mix_transforms.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <algorithm>

#include "data/transforms/beta_quantiles.h"
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
  return one_hot_labels(labels, num_classes, place);
}

// Returns for each sample the next one in the order of their random numbers, int64 [batch].
at::Tensor partners(const at::Tensor& order) {
  const at::Tensor sorted = at::argsort(order, /*stable=*/true);
  return at::empty_like(sorted).scatter_(0, sorted, sorted.roll(-1));
}

at::Tensor mixed_labels(const Batch& batch, const at::Tensor& partner, const at::Tensor& weight,
                        std::int64_t num_classes, const char* place) {
  const at::Tensor labels = label_probabilities(batch.labels(), num_classes, place);
  const at::Tensor of_sample = weight.view({-1, 1}).to(labels.scalar_type());
  return labels * of_sample + labels.index_select(0, partner) * (1 - of_sample);
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

}  // namespace

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
  const at::Tensor labels = mixed_labels(batch, partner, weight, options_.num_classes, "mix_up");
  const at::Tensor of_sample = per_image(weight).to(images.scalar_type());
  batch.tensors().front() = images * of_sample + images.index_select(0, partner) * (1 - of_sample);
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
  const at::Tensor labels = mixed_labels(batch, partner, kept, options_.num_classes, "cut_mix");
  const at::Tensor rows = positions(height, {1, 1, height, 1}, uniforms);
  const at::Tensor columns = positions(width, {1, 1, 1, width}, uniforms);
  const at::Tensor pasted = (rows >= per_image(y.first)) & (rows < per_image(y.end)) &
                            (columns >= per_image(x.first)) & (columns < per_image(x.end));
  batch.tensors().front() = at::where(pasted, images.index_select(0, partner), images);
  batch.tensors().back() = labels;
  return batch;
}

}  // namespace kindling
