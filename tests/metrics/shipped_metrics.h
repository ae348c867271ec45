// Metrics as fixtures/make_metrics.py calls them, and batches of its cases.
#pragma once

#include <ATen/Functions.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kindling/metrics/accuracy.h"
#include "kindling/metrics/auroc.h"
#include "kindling/metrics/class_score.h"
#include "kindling/metrics/confusion_matrix.h"
#include "kindling/metrics/mean_error.h"
#include "kindling/metrics/perplexity.h"
#include "kindling/metrics/r2.h"
#include "kindling/metrics/top_k.h"

namespace kindling {

inline std::shared_ptr<const Metric> shipped_metric(const std::string& name,
                                                    std::int64_t ignore_index = -100) {
  const std::size_t at = name.find('_');
  const std::string first = name.substr(0, at), rest = at == std::string::npos ? "" : name.substr(at + 1);
  if (first == "precision" || first == "recall" || first == "f1" || first == "iou" || first == "dice")
    return std::make_shared<ClassScore>(ClassScoreOptions{
        .score = first, .average = rest.empty() ? "binary" : rest, .ignore_index = ignore_index});
  if (first == "accuracy")
    return std::make_shared<kindling::Accuracy>(AccuracyOptions{.ignore_index = ignore_index});
  if (first == "auroc" || first == "binned") {
    AurocOptions options{.average = rest.empty() ? "macro" : rest, .ignore_index = ignore_index};
    if (first == "binned") options.num_thresholds = 1001;
    return std::make_shared<Auroc>(options);
  }
  if (first == "confusion")
    return std::make_shared<ConfusionMatrix>(ConfusionMatrixOptions{.ignore_index = ignore_index});
  if (first.starts_with("top"))
    return std::make_shared<TopK>(
        TopKOptions{.k = std::stoll(first.substr(3)), .ignore_index = ignore_index});
  if (first == "perplexity")
    return std::make_shared<Perplexity>(PerplexityOptions{.ignore_index = ignore_index});
  if (first == "r2") return std::make_shared<R2>(R2Options{.average = rest.empty() ? "uniform" : rest});
  return std::make_shared<MeanError>(MeanErrorOptions{.error = first});
}

// Outputs, labels and, where they have any, weights.
struct MetricBatch {
  at::Tensor outputs, labels, weights{};

  at::Tensor part_of(const Metric& metric) const {
    return weights.defined() ? metric.update_weighted(outputs, labels, weights)
                             : metric.update(outputs, labels);
  }
  MetricBatch rows(std::int64_t first, std::int64_t end) const {
    const auto of = [&](const at::Tensor& all) { return all.defined() ? all.slice(0, first, end) : all; };
    return {of(outputs), of(labels), of(weights)};
  }
};

// Of sums or samples, in whatever memory they are.
inline NamedValues values_of(const Metric& metric, const at::Tensor& sums, std::int64_t num_samples) {
  const at::Tensor of_metric = metric.keeps_samples() ? metric.sums_of(sums) : sums;
  const at::Tensor on_host = of_metric.to(at::kDouble).cpu().contiguous();
  return metric.values({on_host.const_data_ptr<double>(), static_cast<std::size_t>(on_host.numel())},
                       static_cast<double>(num_samples));
}

}  // namespace kindling
