#include "kindling/metrics/accuracy.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/where.h>

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
  throw DataError(
      {.place = place,
       .found = "the labels are " + type_text(labels) + ", the outputs " + type_text(outputs),
       .wanted = wanted,
       .remedy = "convert the labels where they are made: labels.to(torch::kLong), labels.squeeze(1)"});
}

namespace {

constexpr std::int64_t kNoClass = -100;

at::Tensor right_answers(const at::Tensor& outputs, const at::Tensor& labels) {
  const bool by_number = are_class_numbers(outputs, labels);
  if (!by_number && !are_class_probabilities(outputs, labels))
    refuse_class_labels("accuracy", outputs, labels);
  return outputs.argmax(1).eq(by_number ? labels : labels.argmax(1));
}

}  // namespace

at::Tensor accuracy(const at::Tensor& outputs, const at::Tensor& labels) {
  const at::NoGradGuard no_grad;
  return right_answers(outputs, labels).to(at::kFloat).mean();
}

Accuracy::Accuracy(AccuracyOptions options) : options_(options) { validate(options_, "Accuracy"); }

at::Tensor Accuracy::update(const at::Tensor& outputs, const at::Tensor& labels) const {
  if (options_.ignore_index) return Metric::update(outputs, labels);
  const at::Tensor right = right_answers(outputs, labels), num_right = right.sum();
  const std::int64_t answers_per_sample = right.numel() / std::max<std::int64_t>(outputs.size(0), 1);
  return answers_per_sample > 1 ? num_right.div(answers_per_sample) : num_right;  // pixels, tokens
}

// The cells: wrong, correct, ignored, not a class.
at::Tensor Accuracy::update_weighted(const at::Tensor& outputs, const at::Tensor& labels,
                                     const at::Tensor& weights) const {
  const ClassAnswers answers =
      class_answers("accuracy", outputs, labels, weights, options_.ignore_index.value_or(kNoClass));
  const at::Tensor hit = answers.labels.eq(answers.predicted()).to(at::kLong);
  const at::Tensor cells =
      at::where(answers.labels.ge(answers.num_classes), answers.labels.sub(answers.num_classes - 2), hit);
  return counts_of(cells, 4, answers.weights);
}

double Accuracy::compute(std::span<const double> sums, double num_samples) const {
  if (sums.size() == 1) return sums[0] / num_samples;
  const std::vector<double> cells = sum_of_parts(sums, kPartsOfWeights);
  if (options_.ignore_index) refuse_other_labels("accuracy", cells[3], *options_.ignore_index);
  return cells[1] / (cells[0] + cells[1] + (options_.ignore_index ? 0 : cells[2] + cells[3]));
}

}  // namespace kindling
