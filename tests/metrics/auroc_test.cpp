// The area under the ROC curve, exact and binned, against the definition: the pairs that are won, of all
// pairs.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "kindling/base/error.h"
#include "metrics/global_means.h"
#include "metrics/shipped_metrics.h"
#include "support/device_under_test.h"
#include "support/log_lines.h"
#include "support/rank_threads.h"
#include "support/scratch.h"

namespace kindling {
namespace {

constexpr double kNoScore = std::numeric_limits<double>::quiet_NaN();
constexpr double kHighest = std::numeric_limits<double>::infinity();

// Of every positive sample against every negative one, float64.
double pairs_won(const at::Tensor& scores, const at::Tensor& is_positive, const at::Tensor& weights = {}) {
  const at::Tensor up = scores.masked_select(is_positive).unsqueeze(1),
                   down = scores.masked_select(is_positive.logical_not());
  const at::Tensor wins = up.gt(down).to(at::kDouble) + up.eq(down).to(at::kDouble) / 2;
  if (!weights.defined()) return wins.mean().item<double>();
  const at::Tensor each =
      weights.masked_select(is_positive).unsqueeze(1) * weights.masked_select(is_positive.logical_not());
  return ((wins * each).sum() / each.sum()).item<double>();
}

double area_of(const Auroc& auroc, const at::Tensor& outputs, const at::Tensor& labels,
               const at::Tensor& weights = {}) {
  const at::Tensor samples = auroc.update_weighted(outputs, labels, weights);
  return values_of(auroc, samples, labels.size(0))[0].second;
}

class ExactArea : public OnDevice {
 protected:
  at::Tensor on(const at::Tensor& tensor) const { return tensor.to(device_); }
};
KINDLING_RUN_ON_DEVICES(ExactArea);

// Scores on a grid have ties; shifts and scales leave nothing of a grid of fixed thresholds.
TEST_P(ExactArea, IsTheFractionOfPairsThatAreWon) {
  at::manual_seed(1);
  const Auroc auroc;
  for (int set = 0; set < 1000; ++set) {
    const std::int64_t count = 2 + set % 60;
    at::Tensor labels = at::randint(2, {count}, at::kLong);
    labels[0] = 0;
    labels[1] = 1;
    at::Tensor scores = at::randn({count}, at::kDouble) + labels;
    if (set % 3 == 0) scores = (scores * 3).round() / 4;
    scores = scores * std::pow(10., set % 13 - 6) + std::pow(-10., set % 5 - 1);
    const at::Tensor weights = set % 4 == 3 ? at::rand({count}, at::kDouble) : at::Tensor();
    EXPECT_NEAR(area_of(auroc, on(scores), on(labels), weights.defined() ? on(weights) : weights),
                pairs_won(scores, labels.eq(1), weights), 1e-12)
        << set;
  }
}

// Differences of logits order two classes; for more, the odds of each against all others, whose logarithm is
// computed here without cancellation.
TEST_P(ExactArea, OfSeveralClassesDoesNotSaturate) {
  at::manual_seed(2);
  const Auroc per_class({.average = "per_class"});
  for (const std::int64_t classes : {2, 3, 7})
    for (const double scale : {1e-6, 1., 40., 1e3}) {
      const at::Tensor labels = at::randint(classes, {200}, at::kLong);
      const at::Tensor logits =
          scale * (at::randn({200, classes}, at::kDouble) + at::one_hot(labels, classes));
      const auto areas = values_of(per_class, per_class.update(on(logits + scale), on(labels)), 200);
      for (std::int64_t i = 0; i < classes; ++i) {
        std::vector<std::int64_t> others(static_cast<std::size_t>(classes));
        std::iota(others.begin(), others.end(), 0);
        others.erase(others.begin() + i);
        const at::Tensor odds = logits.select(1, i) - logits.index_select(1, at::tensor(others)).logsumexp(1);
        EXPECT_NEAR(areas[static_cast<std::size_t>(i)].second, pairs_won(odds, labels.eq(i)), 1e-12)
            << classes << " classes, scale " << scale;
      }
    }
}

// A softmax of 1 in float32 would make all of these equal, and so would a grid that ends at a logit of 20.
TEST_P(ExactArea, OrdersConfidentScores) {
  const at::Tensor labels = on(at::tensor({0, 0, 1, 1}, at::kLong));
  const at::Tensor logits = on(at::tensor({40.F, 80.F, 60.F, 100.F}));
  EXPECT_EQ(area_of(Auroc(), logits, labels), 0.75);
  const at::Tensor of_two = at::stack({at::zeros_like(logits), logits}, 1),
                   of_three = at::cat({of_two, of_two.narrow(1, 0, 1)}, 1);
  EXPECT_EQ(area_of(Auroc(), of_two, labels), 0.75);
  EXPECT_EQ(values_of(Auroc({.average = "per_class"}), Auroc().update(of_three, labels), 4)[1].second, 0.75);
}

// Also where vectorized operators would treat the last rows in another way.
TEST_P(ExactArea, TiesRowsOfTheSameLogits) {
  const Auroc per_class({.average = "per_class"});
  for (std::int64_t count = 2; count < 40; ++count) {
    at::Tensor logits = at::tensor({0.3, -1.7, 0.1, 2.2}, at::kDouble).repeat({count, 1});
    for (std::int64_t i = 1; i < count; i += 2) logits[i] = at::tensor({0.3, 2.2, -1.7, 0.1}, at::kDouble);
    const at::Tensor labels = at::arange(count, at::kLong).floor_divide(2).remainder(2) * 3;
    if (count == 2) continue;  // one label
    EXPECT_EQ(values_of(per_class, per_class.update(on(logits), on(labels)), count)[0].second, 0.5) << count;
  }
}

TEST_P(ExactArea, IsNaNWithANaNScore) {
  const at::Tensor labels = on(at::tensor({0, 0, 1, 1}, at::kLong));
  for (const Auroc& auroc : {Auroc(), Auroc({.num_thresholds = 1001})}) {
    EXPECT_TRUE(std::isnan(area_of(auroc, on(at::tensor({kNoScore, -1., 2., kHighest})), labels)));
    EXPECT_EQ(area_of(auroc, on(at::tensor({-kHighest, -1., 2., kHighest})), labels), 1);
    at::Tensor logits = at::eye(4, 2, at::kFloat);
    logits[3][0] = kNoScore;
    EXPECT_TRUE(std::isnan(area_of(auroc, on(logits), labels)));
    // Of a sample that does not count.
    const at::Tensor ignored = on(at::tensor({0, 0, 1, -100}, at::kLong));
    EXPECT_FALSE(std::isnan(area_of(auroc, on(logits), ignored)));
    for (const double value : std::vector{kNoScore, kHighest, -kHighest})
      EXPECT_TRUE(std::isnan(area_of(auroc, on(at::full({4, 3}, value)), labels)));
  }
}

// numpy.nanmean of scikit-learn's values of the classes.
TEST_P(ExactArea, SkipsAbsentClassesInMeans) {
  const at::Tensor labels = on(at::tensor({0, 1, 0, 1}, at::kLong)), logits = on(at::eye(4, 3));
  const auto areas = values_of(Auroc({.average = "per_class"}), Auroc().update(logits, labels), 4);
  EXPECT_TRUE(std::isnan(areas[2].second));
  EXPECT_EQ(area_of(Auroc(), logits, labels), (areas[0].second + areas[1].second) / 2);
  EXPECT_TRUE(std::isnan(area_of(Auroc(), logits, on(at::zeros({4}, at::kLong)))));
}

TEST_P(ExactArea, KeepsANumberPerOutputAndLabel) {
  const at::Tensor labels = on(at::zeros({5}, at::kLong));
  const Auroc auroc;
  EXPECT_EQ(auroc.update(on(at::zeros({5})), labels).nbytes(), 5U * 2 * 4);
  EXPECT_EQ(auroc.update(on(at::zeros({5, 3}, at::kBFloat16)), labels).nbytes(), 5U * 4 * 4);
  EXPECT_EQ(auroc.update(on(at::zeros({5, 3}, at::kDouble)), labels).nbytes(), 5U * 4 * 8);
}

// A log of batches that are measured one by one.
class AreaLog {
 public:
  explicit AreaLog(Device device) : log(device), device_(device) {}
  void add(const at::Tensor& scores, const at::Tensor& labels, std::optional<double> skipped = {}) {
    log.mark("auroc", metric, metric->update(scores.to(device_), labels.to(device_)));
    if (skipped) {
      log.mark(log.column("skipped", EpochLog::Kind::internal), *skipped);
      log.commit_sums(at::full({}, *skipped, at::device(device_)));
    }
    log.append({.global_step = log.num_rows() + 1,
                .batch = log.num_rows(),
                .weight = static_cast<double>(labels.numel())});
  }
  double area(ProcessGroup* group = nullptr) {
    log.move_to_host();
    const auto values = global_means(log, group, log.find_column("skipped", EpochLog::Kind::internal));
    return values.empty() ? -1 : values.at(0).second;
  }

  EpochLog log;
  std::shared_ptr<const Auroc> metric = std::make_shared<Auroc>();

 private:
  Device device_;
};

TEST_P(ExactArea, OfALogIsThatOfAllBatchesButSkippedOnes) {
  at::manual_seed(3);
  const at::Tensor labels = at::randint(2, {100}, at::kLong), scores = at::randn({100}) + labels;
  AreaLog log(device_), loaded(device_);
  const auto add = [&](AreaLog& to, std::int64_t first, std::int64_t end, double skipped) {
    to.add(scores.slice(0, first, end), labels.slice(0, first, end), skipped);
  };
  add(log, 0, 10, 0);
  log.add(at::full({4}, kNoScore), at::ones({4}, at::kLong), 1);
  add(log, 10, 40, 0);
  StateDict state;
  log.log.save(state, "");
  loaded.log.load(state, "", [&](const std::string&) { return log.metric; });
  for (AreaLog* each : {&log, &loaded}) {
    each->add(at::full({9}, 1e9F), at::zeros({9}, at::kLong), 1);
    add(*each, 40, 100, 0);
    EXPECT_NEAR(each->area(), pairs_won(scores, labels.eq(1)), 1e-12);
    EXPECT_EQ(each->log.totals(each->log.find_column("skipped", EpochLog::Kind::internal)).at(0).weight, 100);
  }
}

TEST_P(ExactArea, RefusesSumsOfTheBinnedForm) {
  const std::shared_ptr<const Metric> binned = std::make_shared<Auroc>(AurocOptions{.num_thresholds = 1001});
  EpochLog log(device_), loaded(device_);
  log.mark("auroc", binned, binned->update(on(at::zeros({2})), on(at::tensor({0, 1}, at::kLong))));
  log.append({});
  StateDict state;
  log.save(state, "");
  const std::string text = error_text<CheckpointError>(
      [&] { loaded.load(state, "", [](const std::string&) { return std::make_shared<Auroc>(); }); });
  EXPECT_NE(
      text.find("with sums of the metric 'auroc'; expected: samples, which the metric now keeps; resume "
                "with the same options"),
      std::string::npos)
      << text;
}

// Ranks have different numbers of samples, and one of them has none.
TEST(ExactAreaOfRanks, IsThatOfAllSamples) {
  at::manual_seed(4);
  const at::Tensor labels = at::randint(3, {90}, at::kLong), scores = at::randn({90, 3});
  AreaLog whole(cpu());
  whole.add(scores, labels);
  const std::vector<std::int64_t> cuts{0, 0, 20, 90};
  on_ranks(3, [&](ProcessGroup& group) {
    const std::int64_t first = cuts[static_cast<std::size_t>(group.rank())],
                       end = cuts[static_cast<std::size_t>(group.rank()) + 1];
    AreaLog part(cpu());
    for (std::int64_t i = first; i < end; i += 10)
      part.add(scores.slice(0, i, i + 10), labels.slice(0, i, i + 10));
    if (first == end) {  // repeats a batch that does not count
      part.log.mark("auroc", part.metric, part.metric->update(scores, labels));
      part.log.append({.weight = 0});
    }
    EXPECT_EQ(part.area(&group), whole.area()) << group.rank();
  });
}

TEST(ExactAreaOfRanks, RefusesOtherOutputs) {
  on_ranks(2, [&](ProcessGroup& group) {
    AreaLog part(cpu());
    part.add(at::zeros({4, 2 + group.rank()}), at::tensor({0, 1, 0, 1}, at::kLong));
    const std::string text = error_text<DistributedError>([&] { part.area(&group); });
    EXPECT_EQ(
        text,
        "metric 'auroc': samples of [4] on one rank, of [3] on another; expected: the same outputs on all "
        "ranks");
  });
}

TEST(BinnedArea, IsAnnouncedAsApproximate) {
  LogLines lines;
  const Auroc exact, binned({.num_thresholds = 11});
  ASSERT_EQ(lines.texts.size(), 1U);
  EXPECT_EQ(lines.texts[0].find("auroc: num_thresholds = 11 counts scores between two thresholds as equal"),
            0U)
      << lines.texts[0];
}

// The promise of auroc.h, against every pair of samples.
TEST(BinnedArea, DiffersFromTheExactAreaByAtMostItsBound) {
  at::manual_seed(5);
  const at::Tensor thresholds = at::linspace(-20, 20, 1001, at::kDouble);
  for (const double strength : {1., 6., 30.}) {  // of the last, half of the scores are beyond all thresholds
    const at::Tensor labels = at::randint(2, {2000}, at::kLong);
    const at::Tensor scores = strength * (at::randn({2000}) + 1.5 * labels);
    const at::Tensor up = scores.masked_select(labels.eq(1)), down = scores.masked_select(labels.eq(0));
    const double exact = up.unsqueeze(1).gt(down).to(at::kDouble).mean().item<double>();
    const auto shares = [&](const at::Tensor& of) {
      const at::Tensor bins = at::searchsorted(thresholds, of.to(at::kDouble), false, /*right=*/true);
      return at::bincount(bins, {}, 1002).to(at::kDouble) / of.numel();
    };
    const double bound = shares(up).dot(shares(down)).item<double>() / 2;
    const Auroc auroc({.num_thresholds = 1001});
    const double binned = values_of(auroc, auroc.update(scores, labels), 2000)[0].second;
    EXPECT_LE(std::abs(binned - exact), bound + 1e-12) << strength;  // rounding of 1e6 pairs
    EXPECT_LT(bound, strength < 20 ? 0.005 : 0.2) << strength;
    EXPECT_NEAR(binned, exact, strength < 20 ? 1e-3 : bound) << strength;
  }
}

}  // namespace
}  // namespace kindling
