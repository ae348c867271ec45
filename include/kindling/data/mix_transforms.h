#pragma once

#include <cstdint>
#include <memory>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/data/transform.h"

namespace kindling {

class BetaQuantiles;

struct OneHotOptions {
  std::int64_t num_classes = 10;
  static constexpr auto fields = kindling::fields(
      kindling::field("num_classes", &OneHotOptions::num_classes, {.doc = "number of classes", .min = 1}));
};

// Replaces class labels [batch] of an integer dtype, the last tensor, by float32 [batch, num_classes] with
// one 1 per sample. A label outside [0, num_classes) has no 1. Deterministic.
class KINDLING_API OneHot : public Transform {
 public:
  explicit OneHot(OneHotOptions options = {});
  Batch apply(Batch batch, const at::Tensor& uniforms) const override;

 private:
  OneHotOptions options_;
};

struct MixOptions {
  double alpha = 1;
  std::int64_t num_classes = 10;

  static constexpr auto fields = kindling::fields(
      kindling::field(
          "alpha", &MixOptions::alpha,
          {.doc = "the weight of the sample is drawn from Beta(alpha, alpha)", .min = 0.01, .max = 100}),
      kindling::field("num_classes", &MixOptions::num_classes,
                      {.doc = "number of classes, for class labels", .min = 1}));
};

// Both mix each sample with another one of the batch. The samples are ordered by a random number, and each is
// mixed with the next in this cycle, so the result depends on which samples are in the batch, but not on
// their order. Class labels [batch] become probabilities float32 [batch, num_classes]; labels
// [batch, num_classes], of one or several classes per sample, are mixed as numbers. Masks are mixed like
// their images, in place of labels or next to them; mix_up refuses masks of integers. Alpha other than 1 uses
// the quantiles of the Beta distribution at 4,097 points, linear in between; the first use on a device copies
// them there.

// Returns weight · sample + (1 - weight) · partner, of images and labels (Zhang et al., "mixup: Beyond
// Empirical Risk Minimization", 2018). Random numbers: order, weight.
class KINDLING_API MixUp : public Transform {
 public:
  // Throws ConfigError for options out of range.
  explicit MixUp(MixOptions options = {});
  ~MixUp() override;
  std::int64_t num_random() const override { return 2; }
  Batch apply(Batch batch, const at::Tensor& uniforms) const override;

 private:
  MixOptions options_;
  std::unique_ptr<BetaQuantiles> weights_;
};

// Pastes a rectangle of the partner, with the fraction 1 - weight of the area before it is cut at the border,
// and mixes the labels by the area (Yun et al., "CutMix: Regularization Strategy to Train Strong Classifiers
// with Localizable Features", 2019). Random numbers: order, weight, centre along x, centre along y.
class KINDLING_API CutMix : public Transform {
 public:
  // Throws ConfigError for options out of range.
  explicit CutMix(MixOptions options = {});
  ~CutMix() override;
  std::int64_t num_random() const override { return 4; }
  Batch apply(Batch batch, const at::Tensor& uniforms) const override;

 private:
  MixOptions options_;
  std::unique_ptr<BetaQuantiles> weights_;
};

}  // namespace kindling
