#include "metrics/area_sums.h"

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "metrics/exact_sums.h"

namespace kindling {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The columns of the samples.
struct Scores {
  explicit Scores(const at::Tensor& samples)
      : has_weights(samples.dim() == 3),
        num_outputs(samples.size(-1) - (has_weights ? 2 : 1)),
        num_classes(std::max<std::int64_t>(num_outputs, 2)),
        outputs(samples.flatten(1).narrow(1, 0, num_outputs)),
        labels(samples.flatten(1).select(1, num_outputs)),
        weights(has_weights ? samples.flatten(1).select(1, num_outputs + 1) : at::Tensor()) {}
  // One logit is the score of class 1.
  std::int64_t class_of(std::int64_t output) const { return num_classes - num_outputs + output; }

  bool has_weights;
  std::int64_t num_outputs, num_classes;
  at::Tensor outputs, labels, weights;
};

// The odds of class c are exp(z_c) / Σ exp(z_j) over the other classes j, here divided by their mean, since
// only the order counts. With the largest logit m, the sum is (classes − 1) + Σ expm1(z_j − m) without c's
// term; of m itself, m is replaced by the next logit, so that nothing cancels. Differences between logits
// count in full, however close they are: of two classes, the logarithm is their difference.
struct RowOfLogits {
  double largest, next;
  double sum;        // Σ expm1(z − largest)
  double sum_below;  // Σ expm1(z − next), without the largest one
};

// `logits` are sorted, so that the sums do not depend on the order of the classes.
RowOfLogits row_of(std::span<double> logits) {
  for (const double logit : logits)
    if (std::isnan(logit)) return {logit, logit, logit, logit};
  std::ranges::sort(logits, std::greater());
  RowOfLogits row{logits[0], logits[1], 0, 0};
  for (const double logit : logits) row.sum += std::expm1(logit - row.largest);
  for (const double logit : logits.subspan(1)) row.sum_below += std::expm1(logit - row.next);
  return row;
}

double log_odds(double logit, const RowOfLogits& row, double num_others) {
  if (logit != row.largest)
    return logit - row.largest - std::log1p((row.sum - std::expm1(logit - row.largest)) / num_others);
  const double above_next = row.largest - row.next;  // NaN if all logits are -inf
  return row.next == -kInfinity ? above_next : above_next - std::log1p(row.sum_below / num_others);
}

// The scores of a class on the CPU, number by number: vectorized operators round the last elements of a
// tensor in another way, so that equal rows would have different scores.
class HostScores {
 public:
  explicit HostScores(const at::Tensor& outputs) : outputs_(outputs), num_outputs_(outputs.size(1)) {
    if (num_outputs_ == 1) return;
    rows_.resize(static_cast<std::size_t>(outputs.size(0)));
    at::parallel_for(0, outputs.size(0), kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
      const at::Tensor part =
          outputs_.slice(0, begin, end).to(at::kDouble, false, /*copy=*/true).contiguous();
      double* logits = part.mutable_data_ptr<double>();
      for (std::int64_t i = begin; i < end; ++i, logits += num_outputs_)
        rows_[static_cast<std::size_t>(i)] = row_of({logits, static_cast<std::size_t>(num_outputs_)});
    });
  }

  at::Tensor of(std::int64_t output) const {
    const at::Tensor column = outputs_.select(1, output).to(at::kDouble).contiguous();
    if (num_outputs_ == 1) return column;
    at::Tensor scores = at::empty_like(column);
    const double* const logits = column.const_data_ptr<double>();
    double* const to = scores.mutable_data_ptr<double>();
    at::parallel_for(0, column.numel(), kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        to[i] =
            log_odds(logits[i], rows_[static_cast<std::size_t>(i)], static_cast<double>(num_outputs_ - 1));
    });
    return scores;
  }

 private:
  static constexpr std::int64_t kRowsPerTask = 16384;
  at::Tensor outputs_;
  std::int64_t num_outputs_;
  std::vector<RowOfLogits> rows_;
};

// A sample is its score, or its score and weight. Those of equal score are sorted by weight, so that sums do
// not depend on the order of samples.
using Weighted = std::pair<double, double>;
double score_of(double sample) { return sample; }
double score_of(const Weighted& sample) { return sample.first; }
std::int64_t weight_of(double) { return 1; }
double weight_of(const Weighted& sample) { return sample.second; }

template <class Sample>
double twice_won(std::vector<Sample>& positive, std::vector<Sample>& negative) {
  constexpr std::size_t kFewest = 1 << 15;  // for which a second thread pays off
  std::vector<Sample>* const both[] = {&positive, &negative};
  at::parallel_for(0, 2, positive.size() + negative.size() < kFewest ? 2 : 1,
                   [&](std::int64_t begin, std::int64_t end) {
                     for (; begin < end; ++begin) std::ranges::sort(*both[begin]);
                   });
  decltype(weight_of(Sample())) twice = 0, below = 0;
  auto lower = negative.begin();
  for (auto next = positive.begin(); next != positive.end();) {
    const double score = score_of(*next);
    decltype(below) here = 0, tied = 0;
    for (; lower != negative.end() && score_of(*lower) < score; ++lower) below += weight_of(*lower);
    for (; lower != negative.end() && score_of(*lower) == score; ++lower) tied += weight_of(*lower);
    for (; next != positive.end() && score_of(*next) == score; ++next) here += weight_of(*next);
    twice += here * (2 * below + tied);
    below += tied;
  }
  return static_cast<double>(twice);
}

template <class Sample>
AreaSums sums_on_host(const Scores& samples, std::int64_t output, const at::Tensor& scores,
                      const double* labels, const double* weights) {
  std::vector<Sample> positive, negative;
  AreaSums sums{};
  const auto of_class = static_cast<double>(samples.class_of(output));
  const double* const score = scores.const_data_ptr<double>();
  for (std::int64_t i = 0; i < scores.numel(); ++i) {
    if (!(labels[i] < static_cast<double>(samples.num_classes))) continue;
    if (weights != nullptr && weights[i] == 0) continue;
    const bool is_positive = labels[i] == of_class;
    if (std::isnan(score[i])) ++sums.nan;
    std::vector<Sample>& to = is_positive ? positive : negative;
    if constexpr (std::is_same_v<Sample, Weighted>)
      to.emplace_back(score[i], weights[i]);
    else
      to.push_back(score[i]);
  }
  if (sums.nan == 0) sums.twice_won = twice_won(positive, negative);
  for (const Sample& sample : positive) sums.positive += static_cast<double>(weight_of(sample));
  for (const Sample& sample : negative) sums.negative += static_cast<double>(weight_of(sample));
  return sums;
}

at::Tensor area_sums_on_host(const Scores& samples) {
  const at::Tensor labels = samples.labels.to(at::kDouble).contiguous();
  const at::Tensor weights =
      samples.has_weights ? samples.weights.to(at::kDouble).contiguous() : at::Tensor();
  const double* const of_labels = labels.const_data_ptr<double>();
  const double* const of_weights = samples.has_weights ? weights.const_data_ptr<double>() : nullptr;
  const HostScores scores(samples.outputs);
  std::vector<double> all;
  for (std::int64_t output = 0; output < samples.num_outputs; ++output) {
    const auto sums = samples.has_weights
                          ? sums_on_host<Weighted>(samples, output, scores.of(output), of_labels, of_weights)
                          : sums_on_host<double>(samples, output, scores.of(output), of_labels, nullptr);
    all.insert(all.end(), {sums.twice_won, sums.positive, sums.negative, sums.nan});
  }
  all.push_back(static_cast<double>(
      std::count(of_labels, of_labels + labels.numel(), static_cast<double>(samples.num_classes + 1))));
  at::Tensor result = at::empty({static_cast<std::int64_t>(all.size())}, at::kDouble);
  std::ranges::copy(all, result.mutable_data_ptr<double>());
  return result;
}

// The same on a device, with operators on all samples at once.
class DeviceScores {
 public:
  explicit DeviceScores(const at::Tensor& outputs) : outputs_(outputs) {
    if (outputs.size(1) == 1) return;
    constexpr std::int64_t kRowsPerPart = 1 << 20;  // bounds the memory of the sorted logits
    std::vector<at::Tensor> parts;
    for (const at::Tensor& part : outputs.split(kRowsPerPart)) {
      const at::Tensor sorted = std::get<0>(part.to(at::kDouble).t().sort(0, /*descending=*/true));
      const at::Tensor largest = sorted[0], next = sorted[1];
      parts.push_back(at::stack({largest, next, sorted.sub(largest).expm1_().sum(0),
                                 sorted.slice(0, 1).sub(next).expm1_().sum(0)}));
    }
    rows_ = at::cat(parts, 1);
  }

  at::Tensor of(std::int64_t output) const {
    const at::Tensor column = outputs_.select(1, output);
    if (!rows_.defined()) return column;
    const auto num_others = static_cast<double>(outputs_.size(1) - 1);
    const at::Tensor logit = column.to(at::kDouble), largest = rows_[0], next = rows_[1];
    const at::Tensor below = logit.sub(largest);
    const at::Tensor odds = below.sub(rows_[2].sub(below.expm1()).div_(num_others).log1p_());
    const at::Tensor above_next = largest.sub(next), others = rows_[3].div(num_others).log1p_();
    const at::Tensor of_largest = at::where(next.eq(-kInfinity), above_next, above_next.sub(others));
    return at::where(logit.eq(largest), of_largest, odds);
  }

 private:
  at::Tensor outputs_, rows_;
};

// Whole numbers whose sums are exact in any order: [parts, n], and the unit of each part, [parts, 1].
struct WholeWeights {
  at::Tensor numbers, units;
};

WholeWeights whole_weights(const Scores& samples, const at::Tensor& counts) {
  const at::TensorOptions options = samples.labels.options().dtype(at::kDouble);
  if (!samples.has_weights) return {counts.to(at::kLong).unsqueeze(0), at::ones({1, 1}, options)};
  constexpr std::int64_t kBitsOfPart = 24;
  const at::Tensor units = at::arange(kPartsOfWeights.count, options)
                               .mul_(kBitsOfPart)
                               .add_(kPartsOfWeights.lowest)
                               .exp2_()
                               .unsqueeze(1);
  const at::Tensor weights = samples.weights.to(at::kDouble).masked_fill(counts.logical_not(), 0);
  return {cut(weights, kPartsOfWeights).div_(units).to(at::kLong), units};
}

// The sums of an output's class, float64 [4]. Sorts all samples by score. For each run of equal scores, its
// positive weight wins against the negative weight below it, and ties with that of the run.
at::Tensor sums_on_device(const Scores& samples, std::int64_t output, const at::Tensor& scores,
                          const WholeWeights& weights, const at::Tensor& counts) {
  const auto [sorted, order] = scores.sort();
  const at::Tensor is_positive = samples.labels.eq(samples.class_of(output)).index_select(0, order);
  const at::Tensor numbers = weights.numbers.index_select(1, order);
  const at::Tensor starts =
      at::cat({at::ones({1}, is_positive.options()), sorted.slice(0, 1).ne(sorted.slice(0, 0, -1))});
  const at::Tensor ends = at::cat({starts.slice(0, 1), at::ones({1}, is_positive.options())});
  const auto total = [&](const at::Tensor& parts) {
    return parts.to(at::kDouble).mul_(weights.units).sum(0);
  };
  // The sums up to the end of each run, and before its start.
  const auto sums_of = [&](const at::Tensor& of) {
    const at::Tensor up_to = of.cumsum(1);
    const at::Tensor before = std::get<0>(up_to.sub(of).masked_fill_(starts.logical_not(), 0).cummax(1));
    return std::pair(total(up_to), total(before));
  };
  const auto [positive, positive_before] = sums_of(numbers.mul(is_positive));
  const auto [negative, negative_before] = sums_of(numbers.mul(is_positive.logical_not()));
  const at::Tensor won = positive.sub(positive_before).mul_(negative.add(negative_before));
  const at::Tensor nan = scores.isnan().logical_and_(counts);
  return at::stack(
      {won.masked_fill(ends.logical_not(), 0).sum(), positive[-1], negative[-1], nan.sum().to(at::kDouble)});
}

at::Tensor area_sums_on_device(const Scores& samples) {
  at::Tensor counts = samples.labels.lt(samples.num_classes);
  if (samples.has_weights) counts.logical_and_(samples.weights.ne(0));
  const WholeWeights weights = whole_weights(samples, counts);
  const DeviceScores scores(samples.outputs);
  std::vector<at::Tensor> sums;
  for (std::int64_t output = 0; output < samples.num_outputs; ++output)
    sums.push_back(sums_on_device(samples, output, scores.of(output), weights, counts));
  sums.push_back(samples.labels.eq(samples.num_classes + 1).sum().to(at::kDouble).view({1}));
  return at::cat(sums);
}

}  // namespace

at::Tensor area_sums(const at::Tensor& samples) {
  const Scores scores(samples);
  if (samples.size(0) == 0)
    return at::zeros({scores.num_outputs * AreaSums::kCount + 1}, samples.options().dtype(at::kDouble));
  return samples.is_cpu() ? area_sums_on_host(scores) : area_sums_on_device(scores);
}

}  // namespace kindling
