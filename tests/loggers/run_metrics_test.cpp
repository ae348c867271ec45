#include "loggers/run_metrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>

#include "kindling/base/error.h"
#include "kindling/loggers/jsonl_logger.h"
#include "loggers/metric_charts.h"
#include "support/scratch.h"

namespace kindling {
namespace {

Record step_record(std::int64_t step, double loss) {
  return {.kind = Record::Kind::step, .global_step = step, .epoch = 1, .values = {{"train_loss_step", loss}}};
}

Record epoch_record(std::int64_t epoch, double loss) {
  return {.kind = Record::Kind::epoch,
          .global_step = 10 * epoch,
          .epoch = epoch,
          .values = {{"train_loss", loss}, {"val_confusion_matrix[0][1]", 3}}};
}

RunRecords read_text(const std::string& text) {
  const Scratch scratch;
  std::ofstream(scratch / "metrics.jsonl") << text;
  return read_metrics_file(scratch / "metrics.jsonl");
}

std::vector<double> values_of(const MetricSeries& series) {
  std::vector<double> values;
  for (const MetricPoint& point : series.points()) values.push_back(point.value);
  return values;
}

TEST(MetricSeries, KeepsShortCurvesExactly) {
  MetricSeries series;
  for (int i = 0; i < 2048; ++i) series.add({.global_step = i + 1.0, .value = i / 7.0}, Record::Kind::step);
  ASSERT_EQ(series.points().size(), 2048U);
  EXPECT_TRUE(series.has_all());
  EXPECT_EQ(series.points()[1234].value, 1234 / 7.0);
  EXPECT_EQ(series.points()[1234].global_step, 1235);
}

TEST(MetricSeries, KeepsTheExtremesOfLongCurvesInBoundedMemory) {
  MetricSeries series;
  for (int i = 0; i < 1000000; ++i)
    series.add({.global_step = i + 1.0,
                .value = i == 777777 ? 50.0
                         : i == 31   ? -50.0
                                     : i % 2},
               Record::Kind::step);
  const auto points = series.points();
  EXPECT_FALSE(series.has_all());
  EXPECT_LE(points.size(), 2048U);
  EXPECT_GE(points.size(), 1024U);
  double last_step = 0;
  int num_spikes = 0;
  for (const MetricPoint& point : points) {
    EXPECT_GT(point.global_step, last_step);
    last_step = point.global_step;
    if (std::abs(point.value) == 50) ++num_spikes;
    EXPECT_TRUE(point.value != 50 || point.global_step == 777778);
  }
  EXPECT_EQ(num_spikes, 2);
  EXPECT_EQ(series.num_values(), 1000000);
  EXPECT_EQ(series.lowest()->global_step, 32);
  EXPECT_EQ(series.highest()->value, 50);
  EXPECT_EQ(series.last().value, 1);
}

TEST(MetricSeries, KeepsGapsOfValuesThatAreNotFinite) {
  MetricSeries series;
  const double inf = std::numeric_limits<double>::infinity();
  for (const double value : {1.0, inf, 3.0})
    series.add({.global_step = value, .value = value}, Record::Kind::epoch);
  EXPECT_TRUE(std::isnan(series.points()[1].value));
  EXPECT_EQ(series.num_not_finite(), 1);
  EXPECT_EQ(series.sum(), 4);
  EXPECT_EQ(series.highest()->value, 3);
  EXPECT_TRUE(series.is_by_epoch());

  MetricSeries long_series;  // one group of several values has the gap, another has nothing else
  for (int i = 0; i < 10000; ++i)
    long_series.add({.global_step = i + 1.0, .value = i == 5000 || i > 9000 ? std::nan("") : 1.0},
                    Record::Kind::step);
  const auto values = values_of(long_series);
  // Groups of 16: 62 without a finite value, and two with a gap.
  EXPECT_EQ(std::ranges::count_if(values, [](double value) { return std::isnan(value); }), 64);
  EXPECT_TRUE(std::isnan(values.back()));
  EXPECT_TRUE(std::ranges::any_of(long_series.points(), [](const MetricPoint& point) {
    return std::isnan(point.value) && std::abs(point.global_step - 5001) < 16;
  }));
}

TEST(RunMetrics, KeepsTheOrderOfNamesAndTheLastEpochCompletely) {
  RunMetrics metrics;
  metrics.add(step_record(1, 2.5));
  metrics.add(epoch_record(1, 2.25));
  EXPECT_EQ(metrics.names(), (std::vector<std::string>{"train_loss_step", "train_loss"}));
  EXPECT_EQ(metrics.find("val_confusion_matrix[0][1]"), nullptr);
  EXPECT_EQ(*metrics.last_epoch()->find("val_confusion_matrix[0][1]"), 3);
  EXPECT_EQ(metrics.epochs()[0].find("val_confusion_matrix[0][1]"), nullptr);
  EXPECT_FALSE(metrics.find("train_loss_step")->is_by_epoch());
  EXPECT_TRUE(metrics.find("train_loss")->is_by_epoch());
  EXPECT_EQ(metrics.find("train_loss")->last().epoch, 1);
}

TEST(RunMetrics, ThinsTheEpochsOfLongRuns) {
  RunMetrics metrics;
  for (int epoch = 1; epoch <= 2000; ++epoch) metrics.add(epoch_record(epoch, epoch));
  EXPECT_EQ(metrics.num_epochs(), 2000);
  EXPECT_EQ(metrics.epoch_stride(), 8);
  ASSERT_EQ(metrics.epochs().size(), 250U);
  EXPECT_EQ(metrics.epochs()[1].epoch, 9);
  EXPECT_EQ(metrics.last_epoch()->epoch, 2000);
  EXPECT_EQ(metrics.find("train_loss")->points().size(), 2000U);
}

TEST(RunMetrics, BoundsTheNumberOfNames) {
  RunMetrics metrics;
  for (int i = 0; i < 1000; ++i)
    metrics.add({.global_step = 1, .epoch = 1, .values = {{"metric " + std::to_string(i), 1}}});
  EXPECT_EQ(metrics.names().size(), 256U);
}

TEST(MetricsFile, ReadsWhatTheLoggerWrites) {
  const Scratch scratch;
  {
    JsonlLogger logger(scratch / "metrics.jsonl");
    logger.write(step_record(7, 0.1));
    logger.write(
        {.kind = Record::Kind::validation, .global_step = 8, .epoch = 1, .values = {{"val_loss", 0.2}}});
    logger.write(epoch_record(1, std::nan("")));
  }
  const RunRecords file = read_metrics_file(scratch / "metrics.jsonl");
  EXPECT_EQ(file.num_damaged_lines, 0U);
  EXPECT_EQ(file.metrics.find("train_loss_step")->last().value, 0.1);
  EXPECT_EQ(file.metrics.find("val_loss")->last().global_step, 8);
  EXPECT_FALSE(file.metrics.find("val_loss")->is_by_epoch());
  EXPECT_EQ(file.metrics.find("train_loss")->num_not_finite(), 1);
  EXPECT_EQ(file.metrics.num_epochs(), 1);
  EXPECT_EQ(file.metrics.global_step(), 10);
}

TEST(MetricsFile, SkipsDamagedLinesAndAnIncompleteLastOne) {
  const std::string good = R"({"epoch": 1, "global_step": 2, "train_loss": 0.5})";
  const RunRecords file = read_text(good + "\n" + "not json\n" + R"({"epoch": 2, "global_step": )" + "\n" +
                                    R"({"epoch": 2, "global_step": 4, "deep": {"train_loss": 1}})" + "\n" +
                                    R"({"epoch": 2, "global_step": 4, "list": [1]})" + "\n" +
                                    R"({"epoch": -2, "global_step": 4})" + "\n" + R"({"loss": 4})" + "\n" +
                                    std::string("{\0}\n", 4) + R"({"epoch": 2, "global_step": 4, "train_lo)");
  EXPECT_EQ(file.num_damaged_lines, 7U);
  EXPECT_EQ(file.metrics.num_epochs(), 1);
  EXPECT_EQ(file.metrics.find("train_loss")->last().value, 0.5);
}

TEST(MetricsFile, ReadsLinesAcrossBlocks) {
  std::string text;
  for (int i = 1; i <= 40000; ++i)
    text += "{\"global_step\": " + std::to_string(i) + ", \"epoch\": 1, \"train_loss_step\": 0.25}\n";
  ASSERT_GT(text.size(), std::size_t{1} << 21);
  const RunRecords file = read_text(text);
  EXPECT_EQ(file.num_damaged_lines, 0U);
  EXPECT_EQ(file.metrics.find("train_loss_step")->num_values(), 40000);
  EXPECT_EQ(file.metrics.find("train_loss_step")->sum(), 10000);
}

TEST(MetricsFile, CountsTheLastOfSeveralRuns) {
  const RunRecords file = read_text(R"({"epoch": 1, "global_step": 5, "train_loss": 1})"
                                    "\n"
                                    R"({"epoch": 1, "global_step": 2, "val_loss": 2})"
                                    "\n");
  EXPECT_EQ(file.metrics.names(), (std::vector<std::string>{"val_loss"}));
  EXPECT_TRUE(read_text("").metrics.is_empty());
}

TEST(MetricsFile, RejectsAMissingFile) {
  const Scratch scratch;
  EXPECT_THROW(read_metrics_file(scratch / "none.jsonl"), Error);
  EXPECT_THROW(read_metrics_file(scratch.folder()), Error);
}

std::vector<std::string> titles_of(const std::vector<Chart>& charts) {
  std::vector<std::string> titles;
  for (const Chart& chart : charts) titles.push_back(chart.title);
  return titles;
}

TEST(MetricCharts, GroupsMetricsByFamily) {
  EXPECT_EQ(family_of("train_loss_step"), "loss");
  EXPECT_EQ(family_of("val_acc"), "acc");
  EXPECT_EQ(family_of("val_loss/far"), "loss");
  EXPECT_EQ(family_of("lr"), "lr");
  EXPECT_EQ(family_of("grad_norm/net.0.weight"), "grad_norm");
  EXPECT_EQ(family_of("train_"), "train_");
  EXPECT_EQ(family_of("_step"), "_step");
}

TEST(MetricCharts, DrawsEpochsOrStepsAndTheLossFirst) {
  RunMetrics metrics;
  metrics.add({.kind = Record::Kind::step, .global_step = 1, .epoch = 1, .values = {{"train_loss_step", 4}}});
  metrics.add({.global_step = 10, .epoch = 1, .values = {{"lr", 0.1}, {"val_acc", 0.5}, {"train_loss", 2}}});
  const auto charts = charts_of_run(metrics, metrics.names());
  EXPECT_EQ(titles_of(charts), (std::vector<std::string>{"loss", "acc", "lr"}));
  EXPECT_EQ(charts[0].xlabel, "step");
  EXPECT_EQ(charts[0].curves[0].label, "train_loss");
  EXPECT_EQ(charts[0].curves[0].x, std::vector<double>{10});
  EXPECT_TRUE(charts[0].curves[1].is_background);
  EXPECT_EQ(charts[1].xlabel, "epoch");
  EXPECT_EQ(charts[1].curves[0].x, std::vector<double>{1});
}

TEST(MetricCharts, OverlaysRunsAndBoundsTheCurvesOfAChart) {
  RunMetrics a, b;
  a.add({.global_step = 10, .epoch = 1, .values = {{"train_loss", 1}, {"val_loss", 2}}});
  b.add({.global_step = 5, .epoch = 1, .values = {{"train_loss", 3}}});
  const std::vector<LabelledMetrics> runs{{"a", &a}, {"b", &b}};
  const std::vector<std::string> names{"train_loss", "val_loss", "none"};
  const auto charts = charts_of_runs(runs, names);
  EXPECT_EQ(titles_of(charts), (std::vector<std::string>{"train_loss", "val_loss"}));
  EXPECT_EQ(charts[0].curves[1].label, "b");
  EXPECT_EQ(charts[1].curves.size(), 1U);
  const std::vector<LabelledMetrics> many(20, LabelledMetrics{"a", &a});
  EXPECT_EQ(charts_of_runs(many, names)[0].curves.size(), 12U);
  EXPECT_EQ(charts_of_runs(many, names)[0].title, "train_loss (12 of 20 curves)");
}

}  // namespace
}  // namespace kindling
