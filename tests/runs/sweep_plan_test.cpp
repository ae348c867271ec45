#include "runs/sweep_plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>

#include "kindling/base/error.h"
#include "runs/sweep_results.h"
#include "support/scratch.h"

namespace kindling {
namespace {

using Values = std::vector<std::vector<std::string>>;

Values values_of(const SweepPlan& plan) {
  Values values;
  for (const SweepRun& run : plan.runs) values.push_back(run.values);
  return values;
}

SweepDefinition random_search(std::int64_t num_runs, SweepRange range) {
  return {.method = "random",
          .num_runs = num_runs,
          .seed = 7,
          .parameters = {{.key = "optimizer.lr", .range = range}, {.key = "seed", .values = {"0", "1"}}}};
}

TEST(SweepPlan, GridVariesTheLastKeyFastest) {
  const SweepPlan plan = make_plan(
      {.parameters = {{.key = "lr", .values = {"0.1", "0.2"}}, {.key = "seed", .values = {"0", "1"}}}});
  EXPECT_EQ(plan.keys, (std::vector<std::string>{"lr", "seed"}));
  EXPECT_EQ(values_of(plan), (Values{{"0.1", "0"}, {"0.1", "1"}, {"0.2", "0"}, {"0.2", "1"}}));
  EXPECT_EQ(plan.runs[0].name, "001");
  EXPECT_EQ(plan.runs[3].name, "004");
}

TEST(SweepPlan, GridOfARangeIsEvenOnItsScale) {
  const auto grid = [](SweepRange range) {
    return values_of(make_plan({.parameters = {{.key = "x", .range = range}}}));
  };
  EXPECT_EQ(grid({.min = 0.001, .max = 0.1, .is_log = true, .num = 3}),
            (Values{{"0.001"}, {"0.01"}, {"0.1"}}));
  EXPECT_EQ(grid({.min = 0, .max = 1, .num = 3}), (Values{{"0.0"}, {"0.5"}, {"1.0"}}));
  EXPECT_EQ(grid({.min = 16, .max = 64, .is_log = true, .is_integer = true, .num = 3}),
            (Values{{"16"}, {"32"}, {"64"}}));
  EXPECT_EQ(grid({.min = 1, .max = 2, .is_integer = true, .num = 9}), (Values{{"1"}, {"2"}}));
  EXPECT_EQ(grid({.min = 3, .max = 9, .num = 1}), (Values{{"3.0"}}));
}

TEST(SweepPlan, RandomRunsStayWhenMoreAreRequested) {
  const SweepRange range{.min = 1e-4, .max = 1e-1, .is_log = true};
  const Values few = values_of(make_plan(random_search(3, range))),
               many = values_of(make_plan(random_search(200, range)));
  EXPECT_EQ(few, Values(many.begin(), many.begin() + 3));
  int below_middle = 0;
  for (const auto& row : many) {
    const double value = std::atof(row[0].c_str());
    EXPECT_GE(value, 1e-4);
    EXPECT_LE(value, 1e-1);
    below_middle += value < 3.1623e-3;  // the geometric mean
  }
  EXPECT_NEAR(below_middle, 100, 30);  // four standard deviations
}

// They are part of what a sweep file means: another version must draw the same ones.
TEST(SweepPlan, RandomValuesAreKnown) {
  const SweepPlan plan = make_plan(
      {.method = "random", .num_runs = 2, .seed = 0, .parameters = {{.key = "x", .range = SweepRange{}}}});
  EXPECT_EQ(values_of(plan), (Values{{"0.92413"}, {"0.441763"}}));
}

TEST(SweepPlan, RandomWholeNumbersReachBothLimits) {
  const Values values = values_of(make_plan(random_search(100, {.min = 2, .max = 4, .is_integer = true})));
  std::map<std::string, int> counts;
  for (const auto& row : values) ++counts[row[0]];
  ASSERT_EQ(counts.size(), 3u);
  for (const char* value : {"2", "3", "4"}) EXPECT_GT(counts[value], 15) << value;  // 33 expected
}

TEST(SweepPlan, RefusesWhatCannotBeRun) {
  const auto error = [](SweepDefinition definition) {
    return error_text<ConfigError>([&] { make_plan(definition); });
  };
  const auto with = [](SweepParameter parameter) {
    return SweepDefinition{.parameters = {std::move(parameter)}};
  };
  EXPECT_EQ(error({}),
            "sweep: there are no parameters; expected: at least one key with values; [parameters] in the "
            "sweep file, "
            "or --sweep optimizer.lr=1e-4,3e-4");
  EXPECT_NE(error(with({.key = "x"})).find("sweep, x: the list is empty"), std::string::npos);
  EXPECT_NE(error(with({.key = "run.dir", .values = {"a"}})).find("the sweep sets this key itself"),
            std::string::npos);
  EXPECT_NE(error(with({.key = "x", .range = SweepRange{.min = 2, .max = 1, .num = 2}})).find("min <= max"),
            std::string::npos);
  EXPECT_NE(error(with({.key = "x", .range = SweepRange{.min = 0, .max = 1, .is_log = true, .num = 2}}))
                .find("min > 0"),
            std::string::npos);
  EXPECT_NE(error(with({.key = "x", .range = SweepRange{}})).find("num = 5"), std::string::npos);
  const std::vector<std::string> many(101, "1");
  EXPECT_NE(error({.parameters = {{.key = "a", .values = many}, {.key = "b", .values = many}}})
                .find("more than 10000 runs"),
            std::string::npos);
  EXPECT_NE(error({.parameters = {{.key = "a", .values = {"1"}}, {.key = "a", .values = {"2"}}}})
                .find("given twice"),
            std::string::npos);
  EXPECT_NE(error({.method = "random", .parameters = {{.key = "a", .values = {"1"}}}})
                .find("sweep.num_runs: it is 0"),
            std::string::npos);
}

SweepPlan small_plan() {
  return {.folder = "/home/user",
          .jobs = 2,
          .configs = {{.path = "/a/b.toml", .text = "seed = 0\n"}},
          .overrides = {"trainer.max_epochs=3"},
          .monitor = "val_acc",
          .mode = "max",
          .median = {.is_on = true, .min_epochs = 2, .min_runs = 4},
          .keys = {"lr"},
          .runs = {{.name = "001", .values = {"0.1"}}, {.name = "002", .values = {"\"a, b\""}}}};
}

TEST(SweepPlan, ReadsWhatItWrites) {
  const SweepPlan plan = small_plan(), read = parse_plan(plan_text(plan), "sweep.json");
  EXPECT_TRUE(plan_differences(plan, read).empty());
  EXPECT_EQ(read.folder, plan.folder);
  EXPECT_EQ(read.jobs, 2);
  EXPECT_EQ(read.runs, plan.runs);
  EXPECT_EQ(read.median, plan.median);
}

TEST(SweepPlan, RefusesDamagedFiles) {
  const std::string text = plan_text(small_plan());
  for (std::size_t size = 0; size < text.size() - 2; ++size)
    EXPECT_THROW(parse_plan(text.substr(0, size), "sweep.json"), ConfigError) << size;
  EXPECT_THROW(parse_plan("[]", "sweep.json"), ConfigError);
  std::string hostile = text;
  hostile.replace(hostile.find("\"001\""), 5, "\"../\"");
  EXPECT_THROW(parse_plan(hostile, "sweep.json"), ConfigError);
}

TEST(SweepPlan, NamesTheDifferences) {
  const SweepPlan was = small_plan();
  SweepPlan now = was;
  now.runs[1].values[0] = "0.2";
  now.configs[0].text += "#";
  now.overrides.clear();
  EXPECT_EQ(plan_differences(was, now),
            (std::vector<std::string>{"overrides: was trainer.max_epochs=3, now not set",
                                      "config /a/b.toml: its text has changed",
                                      "run 002: lr: was \"a, b\", now 0.2"}));
}

TEST(MedianRule, ComparesWithTheMiddle) {
  EXPECT_TRUE(is_worse_than_median(0.4, {0.3, 0.5, 0.9}, true));
  EXPECT_FALSE(is_worse_than_median(0.5, {0.3, 0.5, 0.9}, true));
  EXPECT_TRUE(is_worse_than_median(0.6, {0.3, 0.5, 0.9}, false));
  EXPECT_FALSE(is_worse_than_median(0.4, {0.3, 0.4, 0.6, 0.2}, true));
  EXPECT_TRUE(is_worse_than_median(0.3, {0.3, 0.4, 0.6, 0.2}, true));  // the mean of 0.3 and 0.4
  EXPECT_TRUE(is_worse_than_median(std::nan(""), {1, 2}, false));
  EXPECT_FALSE(is_worse_than_median(std::nan(""), {std::nan("")}, false));
  EXPECT_FALSE(is_worse_than_median(1, {}, true));
}

TEST(MedianRule, StopsAtTheFirstWorseEpochOnceThereAreEnoughRuns) {
  const EpochValues run{{1, {0.1, 10}}, {2, {0.1, 20}}, {3, {0.1, 30}}},
      good{{1, {0.5, 10}}, {2, {0.6, 20}}, {3, {0.7, 30}}}, fewer{{1, {0.5, 10}}, {2, {0.6, 20}}};
  const auto stop = [&](MedianStopping options) {
    return median_stop_epoch(run, {&good, &fewer, &good}, options, true);
  };
  EXPECT_EQ(stop({.is_on = true, .min_epochs = 1, .min_runs = 3}), 1);
  EXPECT_EQ(stop({.is_on = true, .min_epochs = 2, .min_runs = 3}), 2);
  EXPECT_EQ(stop({.is_on = true, .min_epochs = 3, .min_runs = 3}), 0);
  EXPECT_EQ(stop({.is_on = true, .min_epochs = 3, .min_runs = 2}), 3);
}

}  // namespace
}  // namespace kindling
