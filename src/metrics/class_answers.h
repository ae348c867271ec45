#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace kindling {

// The predictions of a batch that classification metrics count, one by one, including pixels and tokens.
struct ClassAnswers {
  std::int64_t num_classes = 0;
  at::Tensor scores;   // [n, classes], or [n] for one logit for two classes
  at::Tensor labels;   // int64 [n]: a class, num_classes if it is ignored, num_classes + 1: not a class
  at::Tensor weights;  // float64 [n], or undefined
  bool are_probabilities = false;  // the labels were given as probabilities

  // int64 [n]: the class of the largest score, the first of equal ones; num_classes if a score is NaN.
  at::Tensor predicted() const;
};

// [batch, classes, …] or [batch] → the number of rows without a class, one number on the same device.
at::Tensor num_nan_rows(const at::Tensor& outputs);

// outputs: logits [batch, classes, …], or one logit per label (label 1 where it is positive), [batch] or
// [batch, 1, …]. labels: class numbers [batch, …] of an integral type (0 and 1 may be floating-point), or
// class probabilities of the outputs' shape, whose largest counts. weights: [batch] or of the class numbers'
// shape, or undefined. Reads nothing on the host. Throws DataError for other shapes and dtypes.
ClassAnswers class_answers(const char* place, const at::Tensor& outputs, const at::Tensor& labels,
                           const at::Tensor& weights, std::int64_t ignore_index);

// The same for a yes or no of each output: scores [n], one for each number of `labels`, which has the
// outputs' shape: 0 or 1, and of numbers between them 1 above 0.5. weights: [batch], of the outputs' shape,
// or undefined.
ClassAnswers answers_of_each_class(const char* place, const at::Tensor& outputs, const at::Tensor& labels,
                                   const at::Tensor& weights, std::int64_t ignore_index);

// [batch, classes, …] → bool [batch, …]: whether the probabilities of a label add up to 1, as far as those of
// half precision do.
at::Tensor add_up_to_one(const at::Tensor& probabilities);

// `weights` [batch] or of `shape` → float64 [n], one for each of its elements. Throws DataError.
at::Tensor weights_of(const char* place, const at::Tensor& weights, at::IntArrayRef shape);

// Counts how often `cells`, int64 [n], contains each of num_cells, or with what weight: float64 [parts,
// num_cells], to be read by sum_of_parts(…, kPartsOfWeights).
at::Tensor counts_of(const at::Tensor& cells, std::int64_t num_cells, const at::Tensor& weights);

// Called at the end of an epoch. Throws DataError if the count `amount` of labels that are not classes is not
// 0.
void refuse_other_labels(const char* place, double amount, std::int64_t ignore_index);

}  // namespace kindling
