#include "kindling/metrics/confusion_matrix.h"

#include <cmath>
#include <numeric>

#include "metrics/class_answers.h"
#include "metrics/exact_sums.h"

namespace kindling {

// A row for each code of a label, two more than classes, and a column for each class and for none.
at::Tensor ConfusionMatrix::update_weighted(const at::Tensor& outputs, const at::Tensor& labels,
                                            const at::Tensor& weights) const {
  const ClassAnswers answers =
      class_answers("confusion_matrix", outputs, labels, weights, options_.ignore_index);
  const std::int64_t num_columns = answers.num_classes + 1;
  return counts_of(answers.labels.mul(num_columns).add_(answers.predicted()),
                   (answers.num_classes + 2) * num_columns, answers.weights);
}

// Returns the rows of the classes, with the column of the rows without a class last.
std::vector<double> ConfusionMatrix::cells(std::span<const double> sums, std::size_t& num_classes) const {
  std::vector<double> cells = sum_of_parts(sums, kPartsOfWeights);
  num_classes =
      static_cast<std::size_t>(std::lround(std::sqrt(static_cast<double>(cells.size()) + 0.25) - 1.5));
  const auto last_row = cells.end() - static_cast<std::ptrdiff_t>(num_classes + 1);
  refuse_other_labels("confusion_matrix", std::accumulate(last_row, cells.end(), 0.), options_.ignore_index);
  cells.resize(num_classes * (num_classes + 1));
  return cells;
}

at::Tensor ConfusionMatrix::num_without_class(const at::Tensor& outputs, const at::Tensor&) const {
  return num_nan_rows(outputs);
}

double ConfusionMatrix::compute(std::span<const double> sums, double) const {
  std::size_t num_classes = 0;
  const std::vector<double> all = cells(sums, num_classes);
  double right = 0;
  for (std::size_t i = 0; i < all.size(); i += num_classes + 2) right += all[i];
  return right / std::accumulate(all.begin(), all.end(), 0.);
}

NamedValues ConfusionMatrix::values(std::span<const double> sums, double) const {
  std::size_t num_classes = 0;
  NamedValues values;
  const std::vector<double> all = cells(sums, num_classes);
  for (std::size_t label = 0; label < num_classes; ++label) {
    std::string row = "[";
    row.append(std::to_string(label)).append("][");
    for (std::size_t i = 0; i < num_classes; ++i)
      values.emplace_back(row + std::to_string(i) + "]", all[label * (num_classes + 1) + i]);
  }
  return values;
}

}  // namespace kindling
