#include "kindling/metrics/perplexity.h"

#include <ATen/ops/log_softmax.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>

#include <cmath>

#include "kindling/base/error.h"
#include "metrics/class_answers.h"
#include "metrics/class_labels.h"
#include "metrics/exact_sums.h"
#include "tensors/shape_text.h"

namespace kindling {

// Sums −log p and the weights of the labels that count, and the number of labels that are not classes.
at::Tensor Perplexity::update_weighted(const at::Tensor& given, const at::Tensor& labels,
                                       const at::Tensor& weights) const {
  const bool moves_classes = options_.classes_last && given.dim() > 2;
  const at::Tensor outputs = moves_classes ? given.movedim(-1, 1) : given;
  if (!are_class_numbers(outputs, labels) || labels.is_floating_point() || outputs.size(1) < 2)
    throw DataError(
        {.place = "perplexity",
         .found = "the labels are " + type_text(labels) + ", the outputs " + type_text(given),
         .wanted = options_.classes_last ? "outputs [batch, …, classes] and class numbers [batch, …]"
                                         : "outputs [batch, classes, …] and class numbers [batch, …]",
         .remedy = options_.classes_last ? "omit classes_last for outputs [batch, classes, tokens]"
                                         : "set classes_last for outputs [batch, tokens, classes]"});
  const ClassAnswers answers = class_answers("perplexity", outputs, labels, weights, options_.ignore_index);
  const at::Tensor does_not_count = answers.labels.ge(answers.num_classes);
  const at::Tensor indices = answers.labels.masked_fill(does_not_count, 0).unsqueeze(1);
  const at::ScalarType dtype = outputs.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor losses = at::log_softmax(answers.scores, 1, dtype).gather(1, indices).squeeze(1).neg();
  const at::Tensor weight = answers.weights.defined() ? answers.weights : at::ones_like(losses, at::kDouble);
  return cut(at::stack({losses.to(at::kDouble).mul_(weight).masked_fill_(does_not_count, 0),
                        weight.masked_fill(does_not_count, 0),
                        answers.labels.gt(answers.num_classes).to(at::kDouble)}),
             kPartsOfNumbers)
      .sum(2);
}

double Perplexity::compute(std::span<const double> sums, double) const {
  const std::vector<double> totals = sum_of_parts(sums, kPartsOfNumbers);
  refuse_other_labels("perplexity", totals[2], options_.ignore_index);
  return std::exp(totals[0] / totals[1]);
}

}  // namespace kindling
