#include "kindling/metrics/epoch_log.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <map>

#include "kindling/base/error.h"
#include "kindling/device/transfer_counts.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

class Log : public OnDevice {
 protected:
  at::Tensor number(double value) const { return at::full({}, value, at::device(device_).dtype(at::kFloat)); }
};
KINDLING_RUN_ON_DEVICES(Log);

using Means = std::vector<std::pair<std::string, double>>;

TEST_P(Log, MeansAreWeighted) {
  EpochLog log(device_);
  log.mark("loss", number(1));
  log.mark("acc", number(0.25));
  log.append({.weight = 3});
  log.mark("loss", number(5));
  log.mark("acc", number(0.75));
  log.append({.weight = 1});
  log.move_to_host();
  EXPECT_EQ(log.num_rows(), 2);
  EXPECT_EQ(log.means(), (Means{{"loss", 2}, {"acc", 0.375}}));  // (3·1 + 5) / 4, (3/4 + 3/4) / 4
}

TEST_P(Log, EachNameIsWeightedByItsOwnRows) {
  EpochLog log(device_);
  log.mark("loss", number(1));
  log.append({.weight = 1});
  log.mark("late", number(10));
  log.mark("loss", number(3));
  log.append({.weight = 1});
  log.mark("loss", number(8));
  log.append({.weight = 2});
  log.append({.weight = 5});  // nothing was logged
  log.move_to_host();
  EXPECT_EQ(log.means(), (Means{{"loss", 5}, {"late", 10}}));
  EXPECT_EQ(log.value(1, log.column("loss")), 3);
  EXPECT_EQ(log.value(0, log.column("late")), std::nullopt);
  EXPECT_EQ(log.value(3, log.column("loss")), std::nullopt);
  EXPECT_EQ(log.value(4, log.column("loss")), std::nullopt);
  EXPECT_EQ(log.value(-1, log.column("loss")), std::nullopt);
}

TEST_P(Log, GrowsWithoutLosingValues) {
  EpochLog log(device_, /*capacity=*/2);
  for (int i = 0; i < 100; ++i) {
    log.mark("a", number(i));
    if (i % 3 == 0) log.mark("b", number(-i));
    log.append({.weight = 1});
  }
  log.move_to_host();
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(log.value(i, 0), i);
    EXPECT_EQ(log.value(i, 1), i % 3 == 0 ? std::optional<double>(-i) : std::nullopt);
  }
  EXPECT_EQ(log.means(), (Means{{"a", 49.5}, {"b", -49.5}}));
}

TEST_P(Log, KeepsAllDigitsOfFloat64FromItsFirstValueOn) {
  const auto wide = [&](double value) { return at::full({}, value, at::device(device_).dtype(at::kDouble)); };
  EpochLog log(device_, /*capacity=*/3);
  log.mark("loss", number(0.5));
  log.append({.weight = 1});
  log.mark(log.column("loss"), {.loss = wide(0.1), .weight = wide(0.3)});
  log.append({.weight = 1});
  StateDict state;
  log.save(state, "log.");
  EpochLog loaded(device_, /*capacity=*/1);
  loaded.load(state, "log.", [](const std::string&) { return nullptr; });
  for (EpochLog* const any : {&log, &loaded}) {
    any->mark("loss", wide(1. / 3));
    any->append({.weight = 2});
    any->move_to_host();
    EXPECT_EQ(any->value(1, 0), 0.1);
    EXPECT_EQ(any->means(), (Means{{"loss", (0.5 + 0.3 * 0.1 + 2 * (1. / 3)) / (1 + 0.3 + 2)}}));
  }
}

TEST_P(Log, TakesAnyDtypeShapeOfOneElementAndPlace) {
  EpochLog log(device_);
  const auto on = at::device(device_);
  log.mark("double", at::full({}, 0.5, on.dtype(at::kDouble)));
  log.mark("long", at::full({}, 3, on.dtype(at::kLong)));
  log.mark("bool", at::full({}, true, on.dtype(at::kBool)));
  log.mark("half", at::full({}, 1.5, on.dtype(at::kHalf)));
  log.mark("row", at::full({1}, 4, on.dtype(at::kFloat)));
  log.mark("matrix", at::full({1, 1}, 5, on.dtype(at::kDouble)));
  log.mark("host", at::scalar_tensor(6, at::kFloat));
  log.mark("host double", at::scalar_tensor(7, at::kDouble));
  log.mark("host row", at::full({1}, 8, at::kLong));
  log.mark("gradient", at::full({}, 9., on.dtype(at::kFloat)).requires_grad_() * 1);
  log.append({.weight = 1});
  log.move_to_host();
  EXPECT_EQ(log.means(), (Means{{"double", 0.5},
                                {"long", 3},
                                {"bool", 1},
                                {"half", 1.5},
                                {"row", 4},
                                {"matrix", 5},
                                {"host", 6},
                                {"host double", 7},
                                {"host row", 8},
                                {"gradient", 9}}));
}

TEST_P(Log, SecondValueOfANameReplacesTheFirst) {
  EpochLog log(device_);
  log.mark("other", number(3));
  log.mark("loss", number(1));
  EXPECT_EQ(log.replaced_names(), std::vector<std::string>());
  log.mark("loss", number(2));
  log.mark(log.column("state", EpochLog::Kind::internal), 1);
  log.mark(log.column("state", EpochLog::Kind::internal), 2);
  log.append({.weight = 1});
  log.mark("other", number(3));
  log.mark("loss", number(2));
  log.append({.batch = 1, .weight = 1});
  log.move_to_host();
  EXPECT_EQ(log.means(), (Means{{"other", 3}, {"loss", 2}}));
  EXPECT_EQ(log.replaced_names(), std::vector<std::string>{"loss"});
}

TEST_P(Log, ValueIsReadWhenItsRowIsWritten) {
  EpochLog log(device_);
  const at::Tensor value = number(1);
  log.mark("a", value);
  log.append({.weight = 1});
  value.fill_(7);  // the log has its own copy
  log.move_to_host();
  EXPECT_EQ(log.value(0, 0), 1);
}

TEST_P(Log, ClearForgetsRowsAndKeepsNames) {
  EpochLog log(device_);
  log.mark("loss", number(4));
  log.append({.weight = 1});
  log.move_to_host();
  log.mark("marked", number(1));
  log.clear();
  EXPECT_EQ(log.num_rows(), 0);
  EXPECT_EQ(log.value(0, 0), std::nullopt);
  log.mark("loss", number(6));
  log.append({.weight = 1});
  log.move_to_host();
  ASSERT_EQ(log.columns().size(), 2U);
  EXPECT_EQ(log.columns()[1].name, "marked");
  EXPECT_EQ(log.means(), (Means{{"loss", 6}}));
}

TEST_P(Log, NamesKeepTheirColumn) {
  EpochLog log(device_);
  EXPECT_EQ(log.column("a"), 0);
  EXPECT_EQ(log.column("b"), 1);
  EXPECT_EQ(log.column("b"), 1);
  EXPECT_EQ(log.column("a"), 0);
  EXPECT_EQ(log.column("c"), 2);
  EXPECT_EQ(log.column("a"), 0);
}

TEST_P(Log, RefusesWhatIsNotOneNumber) {
  EpochLog log(device_);
  EXPECT_EQ(error_text<DataError>([&] { log.mark("loss", at::zeros({3})); }),
            "log(\"loss\"): 3 elements; expected: one number; log its mean()");
  EXPECT_EQ(error_text<DataError>([&] { log.mark("loss", at::Tensor()); }),
            "log(\"loss\"): an undefined tensor; expected: one number; log its mean()");
}

TEST_P(Log, MovesToTheHostInOneCopy) {
  EpochLog log(device_, 2);
  const TransferCounts before = transfer_counts();
  for (int i = 0; i < 10; ++i) {
    log.mark("a", number(i));
    log.mark("b", number(i));
    log.append({.weight = 1});
  }
  EXPECT_EQ(transfer_counts(), before);
  log.move_to_host();
  log.move_to_host();  // everything is there: nothing happens
  const TransferCounts expected = device_.is_cpu() ? TransferCounts{} : TransferCounts{0, 0, 1, 80, 1};
  EXPECT_EQ(transfer_counts() - before, expected);
  EXPECT_EQ(log.rows_on_host(), 10);
}

TEST_P(Log, RowsKnowTheirSteps) {
  EpochLog log(device_);
  for (std::int64_t i = 0; i < 4; ++i) {
    log.mark("loss", number(1));
    log.append({.global_step = 10 + i,
                .batch = i,
                .lr = 0.5 / static_cast<double>(i + 1),
                .weight = i < 3 ? 2. : 1.});
  }
  log.append({.global_step = 13, .batch = 4});  // logged after the last step
  for (std::int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(log.tag(i).global_step, 10 + i);
    EXPECT_EQ(log.tag(i).batch, i);
    EXPECT_EQ(log.tag(i).lr, 0.5 / static_cast<double>(i + 1));
    EXPECT_EQ(log.tag(i).weight, i < 3 ? 2 : 1);
  }
  EXPECT_EQ(log.tag(4).global_step, 13);
  EXPECT_EQ(log.tag(4).batch, 4);
}

TEST_P(Log, ValuesMayHaveTheirOwnWeight) {
  EpochLog log(device_);
  log.mark("loss", number(1));
  log.mark("return", number(30), {.weight = 1});
  log.append({.weight = 4});
  log.mark("loss", number(2));
  log.mark(log.column("return"), 60., {.weight = 1});
  log.append({.weight = 8});
  log.move_to_host();
  EXPECT_EQ(log.means(), (Means{{"loss", 20. / 12}, {"return", 45}}));
}

TEST_P(Log, StepOnlyValuesHaveNoMeanAndASeparateColumn) {
  EpochLog log(device_);
  const std::size_t of_steps = log.column("norm", EpochLog::Kind::step_only), of_user = log.column("norm");
  EXPECT_NE(of_steps, of_user);
  log.mark(of_steps, number(7));
  log.mark(of_user, number(3));
  log.append({});
  log.move_to_host();
  EXPECT_EQ(log.means(), (Means{{"norm", 3}}));
  EXPECT_EQ(log.value(0, of_steps), 7);
  EXPECT_EQ(log.value(0, of_user), 3);
}

TEST_P(Log, InternalMarksHaveNoMeanAreSavedAndMaySkipRows) {
  EpochLog log(device_), loaded(device_);
  const std::size_t mark = log.column("mark", EpochLog::Kind::internal), of_user = log.column("mark");
  EXPECT_NE(mark, of_user);
  for (int i = 0; i < 4; ++i) {
    log.mark(of_user, number(i));
    log.mark(mark, number(i == 1 ? 1 : 0));
    log.append({.global_step = i + 1, .batch = i, .weight = 1});
  }
  StateDict state;
  log.save(state, "");
  loaded.load(state, "", [](const std::string&) { return nullptr; });
  loaded.move_to_host();
  for (const EpochLog* one : {&log, &loaded}) {
    EXPECT_EQ(one->find_column("mark", EpochLog::Kind::internal), mark);
    EXPECT_EQ(one->find_column("mark", EpochLog::Kind::step_only), std::nullopt);
    EXPECT_EQ(one->value(1, mark), 1);
    EXPECT_EQ(one->means(), (Means{{"mark", 6. / 4}}));
    EXPECT_EQ(one->means(mark), (Means{{"mark", 5. / 3}}));
  }
}

// Counts right answers; a confusion of two classes.
class Right : public Metric {
 public:
  at::Tensor update(const at::Tensor& outputs, const at::Tensor& labels) const override {
    return outputs.eq(labels).sum();
  }
  double compute(std::span<const double> sums, double num_samples) const override {
    return sums[0] / num_samples;
  }
};
class Confusion : public Metric {
 public:
  at::Tensor update(const at::Tensor& outputs, const at::Tensor& labels) const override {
    const at::Tensor cells = labels.mul(2).add(outputs);
    return cells.unsqueeze(1).eq(at::arange(4, cells.options())).sum(0).view({2, 2});
  }
  // Share of the ones that were found, plus a thousand times the number of samples.
  double compute(std::span<const double> sums, double num_samples) const override {
    return sums[3] / (sums[2] + sums[3]) + 1000 * num_samples;
  }
};

TEST_P(Log, MetricsAreComputedFromSumsAndNotAveraged) {
  EpochLog log(device_);
  const auto right = std::make_shared<Right>();
  const auto confusion = std::make_shared<Confusion>();
  const auto on = [&](std::vector<std::int64_t> values) { return at::tensor(values, at::kLong).to(device_); };
  const auto add = [&](const at::Tensor& outputs, const at::Tensor& labels) {
    log.mark("right", right, right->update(outputs, labels));
    log.mark("found", confusion, confusion->update(outputs, labels));
    log.append({.weight = static_cast<double>(labels.numel())});
  };
  add(on({1, 1, 0}), on({1, 1, 1}));
  add(on({0}), on({0}));
  const TransferCounts before = transfer_counts();
  log.move_to_host();
  log.move_to_host();
  if (!device_.is_cpu()) {
    EXPECT_EQ((transfer_counts() - before).device_to_host_copies, 1);
    EXPECT_EQ((transfer_counts() - before).host_waits, 1);
  }
  EXPECT_EQ(log.means(), (Means{{"right", 0.75}, {"found", 2. / 3 + 4000}}));
  EXPECT_EQ(log.value(0, log.columns()[0].name == "right" ? 0 : 1), 2. / 3);  // of the row alone
  log.clear();
  add(on({1}), on({0}));
  log.move_to_host();
  EXPECT_EQ(log.means()[0], (std::pair<std::string, double>{"right", 0}));
}

TEST_P(Log, SumsOfAStepCanBeReverted) {
  const auto confusion = std::make_shared<Confusion>();
  const auto metric_of = [&](const std::string&) { return confusion; };
  EpochLog log(device_), loaded(device_);
  const auto add = [&](EpochLog& to, double ones) {
    const at::Tensor part = at::tensor({0., 0., 1., ones}).view({2, 2}).to(device_);
    to.mark("found", confusion, part);
  };
  const auto end = [&](EpochLog& to, std::int64_t step, std::optional<double> left_out) {
    if (left_out) {
      to.mark(to.column("skipped", EpochLog::Kind::internal), *left_out);
      to.commit_sums(number(*left_out));
    }
    to.append({.global_step = step, .batch = to.num_rows(), .weight = 2});
  };
  add(log, 3);
  end(log, 1, 0.);
  add(log, 1e300);
  end(log, 2, {});  // the first batch of the step
  StateDict state;
  log.save(state, "");
  loaded.load(state, "", metric_of);
  for (EpochLog* one : {&log, &loaded}) {
    add(*one, std::nan(""));
    end(*one, 2, 1.);
    add(*one, 5);
    end(*one, 3, {});  // counts without commit_sums(), too
    one->move_to_host();
    const Means means = one->means(one->find_column("skipped", EpochLog::Kind::internal));
    EXPECT_EQ(means, (Means{{"found", 8. / 10 + 1000 * 4}}));
  }
}

TEST_P(Log, RefusesSumsOfAnotherSize) {
  EpochLog log(device_);
  const auto confusion = std::make_shared<Confusion>();
  log.mark("found", confusion, at::zeros({4}, at::device(device_)));
  const std::string text =
      error_text<DataError>([&] { log.mark("found", confusion, at::zeros({9}, at::device(device_))); });
  EXPECT_NE(text.find("metric 'found': a batch has 9 numbers, earlier ones had 4"), std::string::npos)
      << text;
}

TEST_P(Log, SavedRowsAreRestoredAndContinued) {
  const auto right = std::make_shared<Right>();
  const auto confusion = std::make_shared<Confusion>();
  const auto metric_of = [&](const std::string& name) -> std::shared_ptr<const Metric> {
    if (name == "right") return right;
    return confusion;
  };
  const auto row = [&](EpochLog& log, std::int64_t i) {
    log.mark("loss", number(static_cast<double>(i) + 0.1));
    if (i % 3 == 1) log.mark("late", number(-i), {.weight = 2});
    log.mark("right", right, at::full({}, i, at::device(device_).dtype(at::kLong)));
    log.mark("found", confusion, at::full({2, 2}, i, at::device(device_).dtype(at::kLong)));
    log.append({.global_step = i + 1, .batch = i, .lr = 1. / static_cast<double>(i + 1), .weight = 3});
  };
  EpochLog whole(device_), first(device_), second(device_, 1);
  for (std::int64_t i = 0; i < 5; ++i) row(whole, i);
  for (std::int64_t i = 0; i < 3; ++i) row(first, i);
  StateDict state;
  first.save(state, "log.");
  second.mark("other", number(1));  // is forgotten
  second.append({});
  second.load(state, "log.", metric_of);
  for (std::int64_t i = 3; i < 5; ++i) row(second, i);
  whole.move_to_host();
  second.move_to_host();
  ASSERT_EQ(second.num_rows(), 5);
  EXPECT_EQ(second.means(), whole.means());
  for (std::int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(second.tag(i).lr, whole.tag(i).lr);
    EXPECT_EQ(second.tag(i).global_step, i + 1);
    for (std::size_t column = 0; column < whole.columns().size(); ++column)
      EXPECT_EQ(second.value(i, column), whole.value(i, column)) << i << " " << column;
  }
}

// As older checkpoints have it.
TEST(EpochLog, SavedRowsWithoutStepsAreOneStepEach) {
  EpochLog log(cpu());
  for (std::int64_t i = 0; i < 3; ++i) {
    log.mark(log.column("loss"), static_cast<double>(i));
    log.append({.global_step = i + 7, .batch = i});
  }
  StateDict state;
  log.save(state, "");
  std::erase_if(state.tensors, [](const auto& item) { return item.first == "steps"; });
  EpochLog loaded(cpu());
  loaded.load(state, "", [](const std::string&) { return nullptr; });
  for (std::int64_t i = 0; i < 3; ++i) EXPECT_EQ(loaded.tag(i).global_step, i + 7);
}

TEST(EpochLog, RejectsSavedRowsThatDoNotMatch) {
  EpochLog log(cpu());
  log.mark("loss", at::ones({}));
  log.append({.global_step = 1});
  const auto none = [](const std::string&) { return nullptr; };
  for (std::size_t missing = 0; missing < 5; ++missing) {
    StateDict state;
    log.save(state, "");
    if (state.tensors[missing].first == "steps") continue;
    state.tensors.erase(state.tensors.begin() + static_cast<std::ptrdiff_t>(missing));
    EXPECT_THROW(EpochLog(cpu()).load(state, "", none), CheckpointError) << missing;
  }
  StateDict cut;
  log.save(cut, "");
  for (auto& [name, tensor] : cut.tensors)
    if (name == "values") tensor = at::empty({7}, at::kFloat);
  EXPECT_THROW(EpochLog(cpu()).load(cut, "", none), CheckpointError);
}

TEST(EpochLog, RefusesKindsOfNewerVersions) {
  EpochLog log(cpu());
  log.mark("loss", at::ones({}));
  log.append({.global_step = 1});
  StateDict state;
  log.save(state, "log.");
  state.metadata["log.column.0.kind"] = "4";
  EXPECT_EQ(error_text<CheckpointError>(
                [&] { EpochLog(cpu()).load(state, "log.", [](const std::string&) { return nullptr; }); }),
            "'log.column.0.kind': the logged value 'loss' is of the kind 4; expected: a kind from 0 to 3; "
            "resume with "
            "the version of Kindling that has saved the checkpoint, or a newer one");
}

TEST(EpochLog, CpuReadsItsOwnMemory) {
  EpochLog log(cpu());
  log.mark("a", at::scalar_tensor(2, at::kFloat));
  log.append({.weight = 1});
  EXPECT_EQ(log.rows_on_host(), 1);
  EXPECT_EQ(log.value(0, 0), 2);
  log.start_preview();
  EXPECT_EQ(log.means(), (Means{{"a", 2}}));
}

}  // namespace
}  // namespace kindling
