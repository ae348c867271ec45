#include "kindling/metrics/metric.h"

#include "kindling/base/error.h"

namespace kindling {

Metric::~Metric() = default;

at::Tensor Metric::update(const at::Tensor& outputs, const at::Tensor& labels) const {
  return update_weighted(outputs, labels, {});
}

at::Tensor Metric::update_weighted(const at::Tensor&, const at::Tensor&, const at::Tensor& weights) const {
  if (!weights.defined())
    throw DataError({.place = "measure",
                     .found = "the metric overrides neither update() nor update_weighted()",
                     .remedy = "override Metric::update()"});
  throw DataError({.place = "measure",
                   .found = "the samples have weights, but the metric does not support weights",
                   .remedy = "override Metric::update_weighted()"});
}

std::optional<std::int64_t> Metric::num_answers(const at::Tensor&, const at::Tensor&) const {
  return std::nullopt;
}

at::Tensor Metric::num_counted(const at::Tensor&, const at::Tensor&, const at::Tensor&) const { return {}; }

at::Tensor Metric::update_without_nan(const at::Tensor& outputs, const at::Tensor& labels) const {
  return update(outputs, labels);
}

at::Tensor Metric::num_without_class(const at::Tensor&, const at::Tensor&) const { return {}; }

at::Tensor Metric::sums_of(const at::Tensor&) const {
  throw DataError({.place = "measure",
                   .found = "the metric keeps samples, but does not override sums_of()",
                   .wanted = "the sums for compute(), from all samples of an epoch",
                   .remedy = "override Metric::sums_of()"});
}

NamedValues Metric::values(std::span<const double> sums, double num_samples) const {
  return {{"", compute(sums, num_samples)}};
}

}  // namespace kindling
