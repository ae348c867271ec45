#include "kindling/metrics/class_score.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>

#include <algorithm>
#include <limits>

#include "kindling/base/error.h"
#include "metrics/class_answers.h"
#include "metrics/exact_sums.h"

namespace kindling {
namespace {

// The counts of one class, or of several together.
struct ClassCount {
  double labels = 0, hits = 0, answers = 0;

  bool occurs() const { return labels + answers > 0; }
  double of(const std::string& score) const {
    if (score == "iou") return ratio(hits, labels + answers - hits);
    if (score == "precision") return ratio(hits, answers);
    return score == "recall" ? ratio(hits, labels) : ratio(2 * hits, labels + answers);
  }

 private:
  static double ratio(double part, double whole) { return whole == 0 ? 0 : part / whole; }
};

// True for scores of regions: a class that does not occur has none.
bool is_overlap(const std::string& score) { return score == "iou" || score == "dice"; }

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

double weighted_mean(const std::vector<ClassCount>& counts, const ClassScoreOptions& options) {
  double sum = 0, weights = 0;
  for (const ClassCount& count : counts) {
    const bool counts = count.occurs() || (options.multi_label && !is_overlap(options.score));
    const double weight = options.average == "weighted" ? count.labels : counts ? 1 : 0;
    sum += weight * count.of(options.score);
    weights += weight;
  }
  return weights == 0 ? 0 : sum / weights;
}

// Counts of [n, classes] answers, each a yes or no of its class.
at::Tensor counts_of_each_class(const ClassAnswers& answers, std::int64_t num_classes) {
  const std::int64_t width = num_classes + 2;
  const at::Tensor classes = at::arange(num_classes, answers.labels.options())
                                 .repeat({answers.labels.numel() / std::max<std::int64_t>(num_classes, 1)});
  const at::Tensor has = answers.labels.eq(1), is_said = answers.predicted().eq(1);
  const at::Tensor counts = answers.labels.lt(2), is_other = answers.labels.eq(3);
  const auto cells = [&](const at::Tensor& is_in) {
    return classes.masked_fill(is_in.logical_not(), num_classes);
  };
  const at::Tensor labels = cells(has).masked_fill_(is_other, num_classes + 1);
  const at::Tensor hits = cells(has.logical_and(is_said)), said = cells(is_said.logical_and(counts));
  return counts_of(at::cat({labels, hits.add_(width), said.add_(2 * width)}), 3 * width,
                   answers.weights.defined() ? answers.weights.repeat({3}) : at::Tensor());
}

}  // namespace

ClassScore::ClassScore(ClassScoreOptions options) : options_(std::move(options)) {
  validate(options_, "ClassScore");
  if (options_.multi_label && options_.average == "binary")
    throw ConfigError({.place = options_.score,
                       .found = "the average is binary, and multi_label is set",
                       .wanted = "macro, micro, weighted or per_class"});
}

at::Tensor ClassScore::update_weighted(const at::Tensor& outputs, const at::Tensor& labels,
                                       const at::Tensor& weights) const {
  if (options_.multi_label) {
    const auto with_classes_last = [](const at::Tensor& tensor) {
      return tensor.dim() < 3 ? tensor : tensor.movedim(1, -1);
    };
    const ClassAnswers each =
        answers_of_each_class(options_.score.c_str(), with_classes_last(outputs), with_classes_last(labels),
                              weights, options_.ignore_index);
    return counts_of_each_class(each, outputs.dim() < 2 ? 1 : outputs.size(1));
  }
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

at::Tensor ClassScore::num_without_class(const at::Tensor& outputs, const at::Tensor&) const {
  return num_nan_rows(outputs);
}

double ClassScore::compute(std::span<const double> sums, double) const {
  const auto counts = class_counts(sums, options_);
  if (total(counts).labels == 0 && !options_.multi_label) return std::numeric_limits<double>::quiet_NaN();
  if (options_.average == "micro") return total(counts).of(options_.score);
  if (options_.average == "binary") return counts[1].of(options_.score);
  return weighted_mean(counts, options_);
}

NamedValues ClassScore::values(std::span<const double> sums, double num_samples) const {
  if (options_.average != "per_class") return Metric::values(sums, num_samples);
  NamedValues values;
  for (const ClassCount& count : class_counts(sums, options_)) {
    const bool is_undefined = is_overlap(options_.score) && !count.occurs();
    values.emplace_back("[" + std::to_string(values.size()) + "]",
                        is_undefined ? std::numeric_limits<double>::quiet_NaN() : count.of(options_.score));
  }
  return values;
}

}  // namespace kindling
