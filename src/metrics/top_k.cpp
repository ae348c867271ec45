#include "kindling/metrics/top_k.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "kindling/base/error.h"
#include "metrics/class_answers.h"
#include "metrics/exact_sums.h"

namespace kindling {

TopK::TopK(TopKOptions options) : options_(options) { validate(options_, "TopK"); }

// The cells: wrong, correct, ignored, not a class.
at::Tensor TopK::update_weighted(const at::Tensor& outputs, const at::Tensor& labels,
                                 const at::Tensor& weights) const {
  const ClassAnswers answers = class_answers("topk", outputs, labels, weights, options_.ignore_index);
  const std::int64_t num_classes = answers.num_classes;
  if (options_.k > num_classes)
    throw DataError({.place = "topk",
                     .found = "k is " + std::to_string(options_.k) + ", but there are outputs for only " +
                              std::to_string(num_classes) + " classes",
                     .wanted = "at most the number of classes"});
  const at::Tensor& logit = answers.scores;
  const at::Tensor scores = logit.dim() == 1 ? at::stack({at::zeros_like(logit), logit}, 1) : logit;
  // Of equal scores, the one of the higher class number is larger, as in scikit-learn.
  const at::Tensor of_label =
      answers.labels.clamp(0, num_classes - 1).unsqueeze(1);  // labels that do not count have other cells
  const at::Tensor score = scores.gather(1, of_label);
  const at::Tensor is_higher =
      at::arange(num_classes, of_label.options()).gt(of_label).logical_and_(scores.eq(score));
  const at::Tensor num_larger = is_higher.logical_or_(scores.gt(score)).sum(1);
  const at::Tensor hit =
      num_larger.lt(options_.k).logical_and_(scores.isnan().any(1).logical_not_()).to(at::kLong);
  const at::Tensor cells =
      at::where(answers.labels.ge(num_classes), answers.labels.sub(num_classes - 2), hit);
  return counts_of(cells, 4, answers.weights);
}

at::Tensor TopK::num_without_class(const at::Tensor& outputs, const at::Tensor&) const {
  return num_nan_rows(outputs);
}

double TopK::compute(std::span<const double> sums, double) const {
  const std::vector<double> cells = sum_of_parts(sums, kPartsOfWeights);
  refuse_other_labels("topk", cells[3], options_.ignore_index);
  return cells[1] / (cells[0] + cells[1]);
}

}  // namespace kindling
