#include "kindling/metrics/auroc.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/where.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kindling/base/log.h"
#include "metrics/area_sums.h"
#include "metrics/class_answers.h"
#include "metrics/exact_sums.h"

namespace kindling {
namespace {

constexpr double kHighestLogit = 20;  // 2e-9 from a probability of 1

// The score of each class against all others, float64 [n, classes]: the logarithm of p / (1 − p).
at::Tensor logits_of(const at::Tensor& scores) {
  if (scores.dim() == 1) return scores.to(at::kDouble).unsqueeze(1);
  const at::Tensor log_p = at::log_softmax(scores, 1, at::kDouble);
  return log_p.sub(log_p.expm1().neg_().log_());
}

// Returns how many thresholds are at most a logit, int64.
at::Tensor bins_of(const at::Tensor& logits, std::int64_t num_thresholds) {
  const double steps_per_unit = static_cast<double>(num_thresholds - 1) / (2 * kHighestLogit);
  return logits.add(kHighestLogit)
      .mul_(steps_per_unit)
      .floor_()
      .add_(1)
      .clamp_(0, static_cast<double>(num_thresholds))
      .to(at::kLong);
}

// The cells: for each class the negative samples by bin, then the positive ones; NaN; ignored; not a class.
at::Tensor binned(const ClassAnswers& answers, std::int64_t num_thresholds) {
  const at::Tensor logits = logits_of(answers.scores);
  const std::int64_t columns = logits.size(1), width = num_thresholds + 1;
  const at::Tensor labels_column = answers.labels.unsqueeze(1), is_nan = logits.isnan();
  // One logit is the score of class 1, the last one.
  const at::Tensor classes =
      at::arange(answers.num_classes - columns, answers.num_classes, labels_column.options());
  const at::Tensor histograms = at::arange(columns, labels_column.options()).mul_(2);
  at::Tensor cells = bins_of(logits.masked_fill(is_nan, 0), num_thresholds)
                         .add_(labels_column.eq(classes).to(at::kLong).add_(histograms).mul_(width));
  const std::int64_t num_counted = 2 * columns * width;
  cells.masked_fill_(is_nan, num_counted);
  cells = at::where(labels_column.ge(answers.num_classes),
                    labels_column.add(num_counted + 1 - answers.num_classes), cells);
  const at::Tensor each = answers.weights.defined()
                              ? answers.weights.unsqueeze(1).expand(cells.sizes()).reshape({-1})
                              : at::Tensor();
  return counts_of(cells.view({-1}), num_counted + 3, each);
}

}  // namespace

Auroc::Auroc(AurocOptions options) : options_(std::move(options)) {
  validate(options_, "Auroc");
  if (options_.num_thresholds)
    log_warning("auroc: num_thresholds = " + std::to_string(*options_.num_thresholds) +
                " counts scores between two thresholds as equal, so that the area is approximate; without it "
                "the area is exact, and an epoch keeps its scores");
}

at::Tensor Auroc::update_weighted(const at::Tensor& outputs, const at::Tensor& labels,
                                  const at::Tensor& weights) const {
  const ClassAnswers answers = class_answers("auroc", outputs, labels, weights, options_.ignore_index);
  if (options_.num_thresholds) return binned(answers, *options_.num_thresholds);
  const at::Tensor scores = answers.scores.dim() == 1 ? answers.scores.unsqueeze(1) : answers.scores;
  const bool is_wide = scores.scalar_type() == at::kDouble ||
                       (answers.weights.defined() && weights.scalar_type() == at::kDouble);
  const at::ScalarType dtype = is_wide ? at::kDouble : at::kFloat;
  std::vector<at::Tensor> columns{scores.to(dtype), answers.labels.unsqueeze(1).to(dtype)};
  if (answers.weights.defined()) columns.push_back(answers.weights.unsqueeze(1).to(dtype));
  const at::Tensor samples = at::cat(columns, 1);
  return answers.weights.defined() ? samples.unsqueeze(1) : samples;
}

at::Tensor Auroc::sums_of(const at::Tensor& samples) const { return area_sums(samples); }

at::Tensor Auroc::num_without_class(const at::Tensor& outputs, const at::Tensor&) const {
  return num_nan_rows(outputs);
}

std::vector<Auroc::Area> Auroc::areas(std::span<const double> sums) const {
  if (options_.num_thresholds) return binned_areas(sums);
  refuse_other_labels("auroc", sums.back(), options_.ignore_index);
  std::vector<Area> areas;
  for (std::size_t first = 0; first + AreaSums::kCount <= sums.size(); first += AreaSums::kCount) {
    const AreaSums of{sums[first], sums[first + 1], sums[first + 2], sums[first + 3]};
    const double value = of.nan > 0 ? std::numeric_limits<double>::quiet_NaN()
                                    : of.twice_won / (2 * of.positive * of.negative);
    areas.push_back({value, of.positive, of.positive > 0 && of.negative > 0});
  }
  return areas;
}

std::vector<Auroc::Area> Auroc::binned_areas(std::span<const double> sums) const {
  const std::vector<double> cells = sum_of_parts(sums, kPartsOfWeights);
  refuse_other_labels("auroc", cells.back(), options_.ignore_index);
  const auto width = static_cast<std::size_t>(*options_.num_thresholds) + 1;
  const bool has_nan = cells[cells.size() - 3] != 0;
  std::vector<Area> areas;
  for (std::size_t first = 0; first + 2 * width < cells.size(); first += 2 * width) {
    double pairs = 0, below = 0, positive = 0;  // pairs of a positive and a lower negative one
    for (std::size_t bin = 0; bin < width; ++bin) {
      const double negative_here = cells[first + bin], positive_here = cells[first + width + bin];
      pairs += positive_here * (below + negative_here / 2);
      below += negative_here;
      positive += positive_here;
    }
    const double value = has_nan ? std::numeric_limits<double>::quiet_NaN() : pairs / (positive * below);
    areas.push_back({value, positive, has_nan || (positive > 0 && below > 0)});
  }
  return areas;
}

double Auroc::compute(std::span<const double> sums, double) const {
  double sum = 0, weights = 0;
  for (const Area& area : areas(sums)) {
    if (!area.is_defined) continue;
    const double weight = options_.average == "weighted" ? area.weight : 1;
    sum += weight * area.value;
    weights += weight;
  }
  return sum / weights;
}

NamedValues Auroc::values(std::span<const double> sums, double num_samples) const {
  if (options_.average != "per_class") return Metric::values(sums, num_samples);
  NamedValues values;
  for (const Area& area : areas(sums))
    values.emplace_back("[" + std::to_string(values.size()) + "]", area.value);
  return values;
}

}  // namespace kindling
