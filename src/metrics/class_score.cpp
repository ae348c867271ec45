#include "kindling/metrics/class_score.h"

#include <ATen/ops/cat.h>

#include <limits>

#include "kindling/base/error.h"
#include "metrics/class_answers.h"
#include "metrics/exact_sums.h"

namespace kindling {
namespace {

// The counts of one class, or of several together.
struct ClassCount {
  double labels = 0, hits = 0, answers = 0;

  double of(const std::string& score) const {
    const double of_what = score == "precision" ? answers : score == "recall" ? labels : labels + answers;
    return of_what == 0 ? 0 : (score == "f1" ? 2 * hits : hits) / of_what;
  }
};

// Labels, hits and predictions, each by class, with two more cells for ignored labels and for labels that are
// not classes.
std::vector<ClassCount> class_counts(std::span<const double> sums, const ClassScoreOptions& options) {
  const std::vector<double> cells = sum_of_parts(sums, kPartsOfWeights);
  const std::size_t width = cells.size() / 3, num_classes = width - 2;
  refuse_other_labels(options.score.c_str(), cells[width - 1], options.ignore_index);
  std::vector<ClassCount> counts;
  for (std::size_t i = 0; i < num_classes; ++i)
    counts.push_back({.labels = cells[i], .hits = cells[width + i], .answers = cells[2 * width + i]});
  return counts;
}

ClassCount total(const std::vector<ClassCount>& counts) {
  ClassCount all;
  for (const ClassCount& count : counts) {
    all.labels += count.labels;
    all.hits += count.hits;
    all.answers += count.answers;
  }
  return all;
}

double weighted_mean(const std::vector<ClassCount>& counts, const std::string& score, bool by_labels) {
  double sum = 0, weights = 0;
  for (const ClassCount& count : counts) {
    const double weight = by_labels ? count.labels : count.labels + count.answers > 0 ? 1 : 0;
    sum += weight * count.of(score);
    weights += weight;
  }
  return sum / weights;
}

}  // namespace

ClassScore::ClassScore(ClassScoreOptions options) : options_(std::move(options)) {
  validate(options_, "ClassScore");
}

at::Tensor ClassScore::update_weighted(const at::Tensor& outputs, const at::Tensor& labels,
                                       const at::Tensor& weights) const {
  const ClassAnswers answers =
      class_answers(options_.score.c_str(), outputs, labels, weights, options_.ignore_index);
  const std::int64_t num_classes = answers.num_classes, width = num_classes + 2;
  if (options_.average == "binary" && num_classes != 2)
    throw DataError({.place = options_.score,
                     .found = "the outputs have " + std::to_string(num_classes) + " classes",
                     .wanted = "two classes for the binary average",
                     .remedy = "use " + options_.score + "_macro, " + options_.score + "_micro, " +
                               options_.score + "_weighted or " + options_.score + "_per_class"});
  const at::Tensor predicted = answers.predicted();
  const at::Tensor does_not_count = answers.labels.ge(num_classes);
  const at::Tensor hits = answers.labels.masked_fill(answers.labels.ne(predicted), num_classes);
  const at::Tensor said = predicted.masked_fill(does_not_count, num_classes);
  return counts_of(at::cat({answers.labels, hits.add_(width), said.add(2 * width)}), 3 * width,
                   answers.weights.defined() ? answers.weights.repeat({3}) : at::Tensor());
}

double ClassScore::compute(std::span<const double> sums, double) const {
  const auto counts = class_counts(sums, options_);
  if (total(counts).labels == 0) return std::numeric_limits<double>::quiet_NaN();
  if (options_.average == "micro") return total(counts).of(options_.score);
  if (options_.average == "binary") return counts[1].of(options_.score);
  return weighted_mean(counts, options_.score, options_.average == "weighted");
}

NamedValues ClassScore::values(std::span<const double> sums, double num_samples) const {
  if (options_.average != "per_class") return Metric::values(sums, num_samples);
  NamedValues values;
  for (const ClassCount& count : class_counts(sums, options_))
    values.emplace_back("[" + std::to_string(values.size()) + "]", count.of(options_.score));
  return values;
}

}  // namespace kindling
