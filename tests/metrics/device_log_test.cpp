#include "kindling/metrics/device_log.h"

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
  DeviceLog log(device_);
  log.mark("loss", number(1));
  log.mark("acc", number(0.25));
  log.write_row(3);
  log.mark("loss", number(5));
  log.mark("acc", number(0.75));
  log.write_row(1);
  log.move_to_host();
  EXPECT_EQ(log.num_rows(), 2);
  EXPECT_EQ(log.means(), (Means{{"loss", 2}, {"acc", 0.375}}));  // (3·1 + 5) / 4, (3/4 + 3/4) / 4
}

TEST_P(Log, EachNameIsWeightedByItsOwnRows) {
  DeviceLog log(device_);
  log.mark("loss", number(1));
  log.write_row(1);
  log.mark("late", number(10));
  log.mark("loss", number(3));
  log.write_row(1);
  log.mark("loss", number(8));
  log.write_row(2);
  log.write_row(5);  // nothing was logged
  log.move_to_host();
  EXPECT_EQ(log.means(), (Means{{"loss", 5}, {"late", 10}}));
  EXPECT_EQ(log.value(1, log.column("loss")), 3);
  EXPECT_EQ(log.value(0, log.column("late")), std::nullopt);
  EXPECT_EQ(log.value(3, log.column("loss")), std::nullopt);
  EXPECT_EQ(log.value(4, log.column("loss")), std::nullopt);
  EXPECT_EQ(log.value(-1, log.column("loss")), std::nullopt);
}

TEST_P(Log, GrowsWithoutLosingValues) {
  DeviceLog log(device_, /*capacity=*/2);
  for (int i = 0; i < 100; ++i) {
    log.mark("a", number(i));
    if (i % 3 == 0) log.mark("b", number(-i));
    log.write_row(1);
  }
  log.move_to_host();
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(log.value(i, 0), i);
    EXPECT_EQ(log.value(i, 1), i % 3 == 0 ? std::optional<double>(-i) : std::nullopt);
  }
  EXPECT_EQ(log.means(), (Means{{"a", 49.5}, {"b", -49.5}}));
}

TEST_P(Log, TakesAnyDtypeShapeOfOneElementAndPlace) {
  DeviceLog log(device_);
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
  log.write_row(1);
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
  DeviceLog log(device_);
  log.mark("loss", number(1));
  log.mark("loss", number(2));
  log.write_row(1);
  log.move_to_host();
  EXPECT_EQ(log.means(), (Means{{"loss", 2}}));
}

TEST_P(Log, ValueIsReadWhenItsRowIsWritten) {
  DeviceLog log(device_);
  const at::Tensor value = number(1);
  log.mark("a", value);
  log.write_row(1);
  value.fill_(7);  // the log has its own copy
  log.move_to_host();
  EXPECT_EQ(log.value(0, 0), 1);
}

TEST_P(Log, ClearForgetsRowsAndKeepsNames) {
  DeviceLog log(device_);
  log.mark("loss", number(4));
  log.write_row(1);
  log.move_to_host();
  log.mark("marked", number(1));
  log.clear();
  EXPECT_EQ(log.num_rows(), 0);
  EXPECT_EQ(log.value(0, 0), std::nullopt);
  log.mark("loss", number(6));
  log.write_row(1);
  log.move_to_host();
  EXPECT_EQ(log.names(), (std::vector<std::string>{"loss", "marked"}));
  EXPECT_EQ(log.means(), (Means{{"loss", 6}}));
}

TEST_P(Log, NamesKeepTheirColumn) {
  DeviceLog log(device_);
  EXPECT_EQ(log.column("a"), 0);
  EXPECT_EQ(log.column("b"), 1);
  EXPECT_EQ(log.column("b"), 1);
  EXPECT_EQ(log.column("a"), 0);
  EXPECT_EQ(log.column("c"), 2);
  EXPECT_EQ(log.column("a"), 0);
}

TEST_P(Log, RefusesWhatIsNotOneNumber) {
  DeviceLog log(device_);
  EXPECT_EQ(error_text<DataError>([&] { log.mark("loss", at::zeros({3})); }),
            "log(\"loss\"): 3 elements; wanted: one number; log its mean()");
  EXPECT_EQ(error_text<DataError>([&] { log.mark("loss", at::Tensor()); }),
            "log(\"loss\"): an undefined tensor; wanted: one number; log its mean()");
}

TEST_P(Log, MovesToTheHostInOneCopy) {
  DeviceLog log(device_, 2);
  const TransferCounts before = transfer_counts();
  for (int i = 0; i < 10; ++i) {
    log.mark("a", number(i));
    log.mark("b", number(i));
    log.write_row(1);
  }
  EXPECT_EQ(transfer_counts(), before);
  log.move_to_host();
  log.move_to_host();  // everything is there: nothing happens
  const TransferCounts expected = device_.is_cpu() ? TransferCounts{} : TransferCounts{0, 0, 1, 80, 1};
  EXPECT_EQ(transfer_counts() - before, expected);
  EXPECT_EQ(log.rows_on_host(), 10);
}

TEST(DeviceLog, CpuReadsItsOwnMemory) {
  DeviceLog log(cpu());
  log.mark("a", at::scalar_tensor(2, at::kFloat));
  log.write_row(1);
  EXPECT_EQ(log.rows_on_host(), 1);
  EXPECT_EQ(log.value(0, 0), 2);
  log.start_preview();
  EXPECT_EQ(log.means(), (Means{{"a", 2}}));
}

}  // namespace
}  // namespace kindling
