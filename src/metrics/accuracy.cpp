#include "kindling/metrics/accuracy.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/where.h>

#include <cmath>
#include <limits>

#include "kindling/base/error.h"
#include "metrics/class_answers.h"
#include "metrics/class_labels.h"
#include "metrics/exact_sums.h"
#include "tensors/shape_text.h"

namespace kindling {

void refuse_class_labels(const char* place, const at::Tensor& outputs, const at::Tensor& labels) {
  std::string wanted = "outputs [batch, classes, …]";
  if (outputs.dim() >= 2) {
    std::vector<std::int64_t> of_numbers = outputs.sizes().vec();
    of_numbers.erase(of_numbers.begin() + 1);
    wanted = "class numbers Long " + shape_text(of_numbers) + " or class probabilities " + type_text(outputs);
  }
  std::string remedy = "convert the labels where they are made: labels.to(torch::kLong), labels.squeeze(1)";
  const bool has_other_classes = labels.is_floating_point() && labels.dim() == 2 && outputs.dim() == 2 &&
                                 labels.size(0) == outputs.size(0) && labels.size(1) > 1;
  if (has_other_classes)
    remedy = "set num_classes = " + std::to_string(outputs.size(1)) +
             " where the probabilities are made, such as in mix_up, cut_mix or one_hot";
  if (outputs.dim() >= 2 && labels.sizes() == outputs.sizes())
    remedy = "if each class has a yes or no of its own, set multi_label = true (model.multi_label)";
  throw DataError({.place = place,
                   .found = "the labels are " + type_text(labels) + ", the outputs " + type_text(outputs),
                   .wanted = wanted,
                   .remedy = remedy});
}

namespace {

constexpr std::int64_t kNoClass = -100;

[[noreturn]] void refuse_sums() {
  throw DataError(
      {.place = "accuracy",
       .found = "labels of the outputs' shape do not add up to 1 over the classes",
       .wanted = "class numbers, or class probabilities",
       .remedy = "if each class has a yes or no of its own (multi-label), set multi_label = true"});
}

constexpr std::int64_t kNoPrediction = std::numeric_limits<std::int64_t>::min();  // equals no label

// The class with the largest output, the first of equal ones; kNoPrediction where an output, and so the
// largest one, is NaN.
at::Tensor classes_or_none(const at::Tensor& outputs) {
  const auto [largest, at] = outputs.max(1);
  return at.masked_fill(largest.isnan(), kNoPrediction);
}

// Returns the number of right answers; NaN if labels of the outputs' shape are not probabilities.
at::Tensor num_right_answers(const at::Tensor& predicted, const at::Tensor& outputs,
                             const at::Tensor& labels) {
  if (are_class_numbers(outputs, labels)) return predicted.eq(labels).sum();
  const at::Tensor num_right = predicted.eq(labels.argmax(1)).sum();
  return num_right.to(at::kFloat).masked_fill_(add_up_to_one(labels).all().logical_not_(), std::nan(""));
}

void require_class_labels(const at::Tensor& outputs, const at::Tensor& labels) {
  if (!are_class_numbers(outputs, labels) && !are_class_probabilities(outputs, labels))
    refuse_class_labels("accuracy", outputs, labels);
}

bool are_integral_class_numbers(const at::Tensor& outputs, const at::Tensor& labels) {
  return are_class_numbers(outputs, labels) && labels.scalar_type() != at::kByte &&  // has no -100
         c10::isIntegralType(labels.scalar_type(), /*includeBool=*/false);
}

// Pixels, tokens: the numbers of the outputs that are not classes.
std::int64_t num_answers_of(const at::Tensor& outputs) {
  return outputs.dim() < 2 || outputs.size(1) == 0 ? outputs.numel() : outputs.numel() / outputs.size(1);
}

}  // namespace

at::Tensor accuracy(const at::Tensor& outputs, const at::Tensor& labels) {
  const at::NoGradGuard no_grad;
  require_class_labels(outputs, labels);
  const at::Tensor num_right = num_right_answers(classes_or_none(outputs), outputs, labels).to(at::kFloat);
  return are_integral_class_numbers(outputs, labels) ? num_right.div(labels.ne(kNoClass).sum())
                                                     : num_right.div(num_answers_of(outputs));
}

Accuracy::Accuracy(AccuracyOptions options) : options_(options) { validate(options_, "Accuracy"); }

at::Tensor Accuracy::update(const at::Tensor& outputs, const at::Tensor& labels) const {
  if (options_.ignore_index || options_.multi_label) return Metric::update(outputs, labels);
  require_class_labels(outputs, labels);
  return num_right_answers(classes_or_none(outputs), outputs, labels);
}

at::Tensor Accuracy::update_without_nan(const at::Tensor& outputs, const at::Tensor& labels) const {
  if (options_.ignore_index || options_.multi_label) return Metric::update(outputs, labels);
  require_class_labels(outputs, labels);
  return num_right_answers(outputs.argmax(1), outputs, labels);
}

std::optional<std::int64_t> Accuracy::num_answers(const at::Tensor& outputs, const at::Tensor&) const {
  const std::int64_t answers = num_answers_of(outputs);
  if (outputs.dim() < 3 || answers == outputs.size(0)) return std::nullopt;
  return answers;
}

at::Tensor Accuracy::num_counted(const at::Tensor& outputs, const at::Tensor& labels,
                                 const at::Tensor& num_labels) const {
  if (options_.ignore_index || options_.multi_label || !are_integral_class_numbers(outputs, labels))
    return {};
  return num_labels.defined() ? num_labels : labels.ne(kNoClass).sum();
}

at::Tensor Accuracy::num_without_class(const at::Tensor& outputs, const at::Tensor&) const {
  return num_nan_rows(outputs);
}

// The cells: wrong, correct, ignored, not a class.
at::Tensor Accuracy::update_weighted(const at::Tensor& outputs, const at::Tensor& labels,
                                     const at::Tensor& weights) const {
  const std::int64_t ignored = options_.ignore_index.value_or(kNoClass);
  const ClassAnswers answers = options_.multi_label
                                   ? answers_of_each_class("accuracy", outputs, labels, weights, ignored)
                                   : class_answers("accuracy", outputs, labels, weights, ignored);
  const at::Tensor hit = answers.labels.eq(answers.predicted()).to(at::kLong);
  const at::Tensor cells =
      at::where(answers.labels.ge(answers.num_classes), answers.labels.sub(answers.num_classes - 2), hit);
  at::Tensor counts = counts_of(cells, 4, answers.weights);
  if (answers.are_probabilities) {  // a class number that is none is a wrong answer, these are none at all
    at::Tensor no_probabilities = counts.select(1, 3);
    no_probabilities.masked_fill_(no_probabilities.ne(0), std::nan(""));
  }
  return counts;
}

double Accuracy::compute(std::span<const double> sums, double num_samples) const {
  if (sums.size() == 1) {
    if (std::isnan(sums[0])) refuse_sums();
    return sums[0] / num_samples;
  }
  const std::vector<double> cells = sum_of_parts(sums, kPartsOfWeights);
  if (std::isnan(cells[3])) refuse_sums();
  const bool refuses = options_.ignore_index || options_.multi_label;
  if (refuses) refuse_other_labels("accuracy", cells[3], options_.ignore_index.value_or(kNoClass));
  return cells[1] / (cells[0] + cells[1] + (refuses ? 0 : cells[3]));
}

}  // namespace kindling
