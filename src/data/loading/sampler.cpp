#include "kindling/data/sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/where.h>

#include <string>

#include "kindling/base/error.h"
#include "kindling/data/sample_random.h"
#include "tensors/shape_text.h"

namespace kindling {

Sampler::~Sampler() = default;

at::Tensor shuffled_order(std::int64_t size, std::int64_t seed, std::int64_t epoch) {
  const auto generator_seed = static_cast<std::uint64_t>(seed + epoch);
  return at::randperm(size, at::make_generator<at::CPUGeneratorImpl>(generator_seed), at::kLong);
}

at::Tensor mixed_order(std::int64_t size, std::int64_t seed, std::int64_t epoch) {
  constexpr std::int64_t kOrders = 0x1B56C4E9;  // set apart from what samples draw with the same seed
  // The CPU generator uses 32 bits of its seed.
  const std::uint64_t bits = SampleStreams(seed ^ kOrders, epoch).of(0)();
  return at::randperm(size, at::make_generator<at::CPUGeneratorImpl>(bits >> 32), at::kLong);
}

WeightedSampler::WeightedSampler(const at::Tensor& weights, std::int64_t seed, std::int64_t num_samples)
    : seed_(seed) {
  const auto refuse = [](std::string found) {
    throw DataError({.place = "WeightedSampler",
                     .found = std::move(found),
                     .wanted = "weights [samples] on the CPU, finite, at least 0, one of them above 0"});
  };
  if (!weights.defined() || weights.dim() != 1 || weights.numel() == 0 || !weights.is_cpu())
    refuse(weights.defined() ? "weights of the shape " + shape_text(weights) + " on " + weights.device().str()
                             : "no weights");
  const at::Tensor values = weights.to(at::kDouble);
  if (!at::isfinite(values).all().item<bool>() || values.lt(0).any().item<bool>())
    refuse("a weight that is negative or not finite");
  sums_ = values.cumsum(0);
  const double total = sums_[-1].item<double>();
  if (!(total > 0)) refuse("weights that are all 0");
  if (num_samples < 0) refuse("num_samples = " + std::to_string(num_samples));
  num_samples_ = num_samples == 0 ? weights.numel() : num_samples;
  sums_.div_(total);
}

// The largest number below 1 may meet a sum that was rounded; a sample of the weight 0 is never chosen,
// because its sum equals that of the sample before.
at::Tensor WeightedSampler::order(std::int64_t epoch) const {
  constexpr std::int64_t kDraws = 0x68E31DA4;  // set apart from what samples draw with the same seed
  const SampleStreams streams(seed_ ^ kDraws, epoch);
  at::Tensor numbers = at::empty({num_samples_}, at::kDouble);
  auto* const number = numbers.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < num_samples_; ++i) number[i] = streams.of(i).uniform();
  return at::searchsorted(sums_, numbers, /*out_int32=*/false, /*right=*/true).clamp_max_(sums_.numel() - 1);
}

at::Tensor balanced_class_weights(const at::Tensor& labels, std::int64_t num_classes) {
  if (!labels.defined() || labels.dim() != 1 || labels.numel() == 0 || !labels.is_cpu() ||
      !at::isIntegralType(labels.scalar_type(), /*includeBool=*/true) ||
      labels.min().item<std::int64_t>() < 0)
    throw DataError({.place = "labels",
                     .found = labels.defined()
                                  ? "a tensor of the shape " + shape_text(labels) + " and dtype " +
                                        std::string(c10::toString(labels.scalar_type())) +
                                        ", or negative labels"
                                  : "no labels",
                     .wanted = "integers [samples] from 0 on, on the CPU"});
  const auto largest = labels.max().item<std::int64_t>();
  if (num_classes > 0 && largest >= num_classes)
    throw DataError({.place = "labels",
                     .found = "class " + std::to_string(largest),
                     .wanted = "classes below " + std::to_string(num_classes)});
  const at::Tensor counts = at::bincount(labels.to(at::kLong), {}, num_classes).to(at::kDouble);
  const at::Tensor present = counts.gt(0);
  const double share = static_cast<double>(labels.numel()) / present.sum().item<double>();
  return at::where(present, counts.reciprocal().mul_(share), 0.0);
}

at::Tensor balanced_sample_weights(const at::Tensor& labels) {
  return balanced_class_weights(labels).index_select(0, labels.to(at::kLong));
}

}  // namespace kindling
