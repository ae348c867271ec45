#include "metrics/class_answers.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "kindling/base/error.h"
#include "metrics/class_labels.h"
#include "metrics/exact_sums.h"
#include "tensors/shape_text.h"

namespace kindling {
namespace {

// How far the sum of a label's probabilities may differ from one, as it does in half precision.
constexpr double kProbabilityTolerance = 1e-2;

bool is_one_logit_per_label(const at::Tensor& outputs, const at::Tensor& labels) {
  const bool has_one_column = outputs.dim() >= 2 && outputs.size(1) == 1;
  return (outputs.dim() == 1 || has_one_column) && outputs.dim() >= 1 &&
         (outputs.sizes() == labels.sizes() || (has_one_column && are_class_numbers(outputs, labels)));
}

// Encodes class numbers; `is_other` marks labels that are not classes.
at::Tensor coded(at::Tensor numbers, const at::Tensor& is_other, const at::Tensor& is_ignored,
                 std::int64_t num_classes) {
  return numbers.masked_fill_(is_other, num_classes + 1).masked_fill_(is_ignored, num_classes);
}

at::Tensor coded_numbers(const at::Tensor& labels, std::int64_t num_classes, std::int64_t ignore_index) {
  const at::Tensor flat = labels.reshape({-1});
  const at::Tensor numbers = flat.to(at::kLong, /*non_blocking=*/false, /*copy=*/true);
  at::Tensor is_other = numbers.lt(0).logical_or_(numbers.ge(num_classes));
  if (flat.is_floating_point()) is_other.logical_or_(numbers.ne(flat));
  return coded(numbers, is_other, flat.eq(ignore_index), num_classes);
}

at::Tensor coded_probabilities(const at::Tensor& rows) {
  return rows.argmax(1).masked_fill_(add_up_to_one(rows).logical_not(), rows.size(1) + 1);
}

// [batch, classes, …] → [n, classes].
at::Tensor rows_of(const at::Tensor& tensor) { return tensor.movedim(1, -1).reshape({-1, tensor.size(1)}); }

}  // namespace

at::Tensor add_up_to_one(const at::Tensor& probabilities) {
  return probabilities.sum(1).sub_(1).abs_().le_(kProbabilityTolerance).to(at::kBool);
}

at::Tensor ClassAnswers::predicted() const {
  if (scores.dim() == 1) return scores.gt(0).to(at::kLong).masked_fill_(scores.isnan(), num_classes);
  const auto [largest, at] = scores.max(1);  // NaN if any score is
  return at.masked_fill(largest.isnan(), num_classes);
}

at::Tensor num_nan_rows(const at::Tensor& outputs) {
  const at::Tensor largest = outputs.dim() < 2 || outputs.size(1) == 1 ? outputs : outputs.amax(1);
  return largest.ne(largest).sum();
}

ClassAnswers class_answers(const char* place, const at::Tensor& outputs, const at::Tensor& labels,
                           const at::Tensor& weights, std::int64_t ignore_index) {
  if (!outputs.is_floating_point())
    throw DataError({.place = place,
                     .found = "the outputs are " + type_text(outputs),
                     .wanted = "logits, floating-point [batch, classes, …]",
                     .remedy = "pass the logits that the loss gets, not the predicted classes"});
  ClassAnswers answers;
  if (is_one_logit_per_label(outputs, labels)) {
    answers.num_classes = 2;
    answers.scores = outputs.reshape({-1});
    answers.labels = coded_numbers(labels, 2, ignore_index);
  } else if (are_class_numbers(outputs, labels) && !labels.is_floating_point() && !labels.is_complex()) {
    answers.num_classes = outputs.size(1);
    answers.scores = rows_of(outputs);
    answers.labels = coded_numbers(labels, answers.num_classes, ignore_index);
  } else if (are_class_probabilities(outputs, labels)) {
    answers.num_classes = outputs.size(1);
    answers.scores = rows_of(outputs);
    answers.labels = coded_probabilities(rows_of(labels));
    answers.are_probabilities = true;
  } else {
    refuse_class_labels(place, outputs, labels);
  }
  if (weights.defined()) {
    std::vector<std::int64_t> shape = outputs.sizes().vec();
    if (shape.size() > 1) shape.erase(shape.begin() + 1);
    answers.weights = weights_of(place, weights, shape);
  }
  return answers;
}

ClassAnswers answers_of_each_class(const char* place, const at::Tensor& outputs, const at::Tensor& labels,
                                   const at::Tensor& weights, std::int64_t ignore_index) {
  if (!outputs.is_floating_point() || labels.is_complex() || outputs.sizes() != labels.sizes())
    throw DataError({.place = place,
                     .found = "the labels are " + type_text(labels) + ", the outputs " + type_text(outputs),
                     .wanted = "logits, and a 0 or 1 for each of them (multi_label)"});
  ClassAnswers answers;
  answers.num_classes = 2;
  answers.scores = outputs.reshape({-1});
  const at::Tensor flat = labels.reshape({-1});
  const at::Tensor is_other = flat.ge(0).logical_and_(flat.le(1)).logical_not_();
  answers.labels = coded(flat.gt(0.5).to(at::kLong), is_other, flat.eq(ignore_index), 2);
  if (weights.defined()) answers.weights = weights_of(place, weights, outputs.sizes());
  return answers;
}

at::Tensor weights_of(const char* place, const at::Tensor& weights, at::IntArrayRef shape) {
  const at::Tensor numbers = weights.to(at::kDouble);
  if (weights.sizes() == shape) return numbers.reshape({-1});
  if (weights.dim() != 1 || shape.empty() || weights.size(0) != shape[0])
    throw DataError({.place = place,
                     .found = "the weights are " + type_text(weights),
                     .wanted = "one per sample, or " + shape_text(shape)});
  std::vector<std::int64_t> column(shape.size(), 1);
  column[0] = shape[0];
  return numbers.view(column).expand(shape).reshape({-1});
}

at::Tensor counts_of(const at::Tensor& cells, std::int64_t num_cells, const at::Tensor& weights) {
  const std::int64_t parts = kPartsOfWeights.count;
  at::Tensor counts = at::zeros({parts, num_cells}, cells.options().dtype(at::kDouble));
  if (!weights.defined())
    counts.select(0, parts - 1).scatter_add_(0, cells, at::ones(cells.sizes(), counts.options()));
  else
    counts.scatter_add_(1, cells.expand({parts, -1}), cut(weights, kPartsOfWeights));
  return counts;
}

void refuse_other_labels(const char* place, double amount, std::int64_t ignore_index) {
  if (amount == 0) return;
  throw DataError({.place = place,
                   .found = "a label in the epoch is not a class of the outputs",
                   .wanted = "class numbers from 0 to classes - 1 (or probabilities that add up to "
                             "1), or " +
                             std::to_string(ignore_index) + ", which is ignored",
                   .remedy = "check the smallest and the largest label; for regression use mae, mse, "
                             "rmse or r2"});
}

}  // namespace kindling
