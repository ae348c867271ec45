// The cost of the log on a GPU, and previews in progress.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "fake_accelerator.h"
#include "kindling/device/transfer_counts.h"
#include "kindling/metrics/epoch_log.h"

namespace kindling {
namespace {

class FakeLog : public testing::Test {
 protected:
  void write(int first, int end) {
    for (int i = first; i < end; ++i) {
      log_.mark("a", at::full({}, i, at::device(fake::device(0)).dtype(at::kFloat)));
      log_.append({.weight = 1});
    }
  }

  EpochLog log_{fake::device(0), 4};
};

TEST_F(FakeLog, RowsAreCopiedOnTheDeviceAndMovedOnce) {
  fake::reset_counts();
  write(0, 50);
  EXPECT_EQ(fake::counts().host_waits(), 0);
  EXPECT_EQ(fake::counts().device_to_host_copies, 0);
  EXPECT_EQ(fake::counts().host_to_device_copies, 0);
  log_.move_to_host();
  EXPECT_EQ(fake::counts().device_to_host_copies, 1);
  EXPECT_EQ(fake::counts().device_to_host_bytes, 200);
  EXPECT_EQ(fake::counts().host_waits(), 1);
  EXPECT_EQ(log_.value(49, 0), 49);
}

TEST_F(FakeLog, HostValuesAreNotCopied) {
  fake::reset_counts();
  log_.mark("float", at::scalar_tensor(0.5, at::kFloat));
  log_.mark("double", at::scalar_tensor(0.5, at::kDouble));
  log_.mark("long", at::full({1}, 2, at::kLong));
  log_.append({.weight = 1});
  EXPECT_EQ(fake::counts().host_to_device_copies, 0);
  EXPECT_EQ(fake::counts().host_waits(), 0);
}

TEST_F(FakeLog, PreviewArrivesWithoutAWait) {
  const fake::LateCopies late;
  write(0, 3);
  fake::reset_counts();
  const TransferCounts before = transfer_counts();
  log_.start_preview();
  log_.start_preview();  // one is under way: nothing happens
  EXPECT_EQ(log_.rows_on_host(), 0);
  EXPECT_EQ(log_.value(0, 0), std::nullopt);
  EXPECT_EQ(log_.rows_on_host(), 3);  // asked for the third time: the copy is done
  EXPECT_EQ(log_.value(2, 0), 2);
  EXPECT_EQ(log_.value(3, 0), std::nullopt);
  EXPECT_EQ(fake::counts().device_to_host_copies, 1);
  EXPECT_EQ(fake::counts().device_to_host_bytes, 12);
  EXPECT_EQ(fake::counts().host_waits(), 0);
  EXPECT_EQ(transfer_counts() - before, (TransferCounts{0, 0, 1, 12, 0}));
}

TEST_F(FakeLog, PreviewsAndTheRestMakeTheWhole) {
  const fake::LateCopies late;
  for (int i = 0; i < 40; ++i) {
    write(i, i + 1);
    log_.start_preview();
    for (int row = 0; row < log_.rows_on_host(); ++row) ASSERT_EQ(log_.value(row, 0), row);
  }
  log_.move_to_host();
  for (int row = 0; row < 40; ++row) EXPECT_EQ(log_.value(row, 0), row);
}

TEST_F(FakeLog, BecomesFloat64WhileAPreviewIsUnderWay) {
  const fake::LateCopies late;
  write(0, 3);
  log_.start_preview();
  fake::reset_counts();
  log_.mark("a", at::full({}, 0.1, at::device(fake::device(0)).dtype(at::kDouble)));
  log_.append({.weight = 1});
  EXPECT_EQ(fake::counts().host_waits(), 0);
  while (log_.rows_on_host() < 3) continue;
  EXPECT_EQ(log_.value(2, 0), 2);
  log_.start_preview();
  while (log_.rows_on_host() < 4) continue;
  EXPECT_EQ(log_.value(2, 0), 2);
  EXPECT_EQ(log_.value(3, 0), 0.1);
  EXPECT_EQ(fake::counts().host_waits(), 0);
}

TEST_F(FakeLog, EndOfTheEpochWaitsForAPreviewUnderWay) {
  const fake::LateCopies late;
  write(0, 4);
  log_.start_preview();
  const TransferCounts before = transfer_counts();
  fake::reset_counts();
  log_.move_to_host();
  EXPECT_EQ(fake::counts().event_waits, 1);
  EXPECT_EQ(fake::counts().host_waits(), 1);
  EXPECT_EQ(fake::counts().device_to_host_copies, 0);
  EXPECT_EQ(transfer_counts() - before, (TransferCounts{0, 0, 0, 0, 1}));
  for (int row = 0; row < 4; ++row) EXPECT_EQ(log_.value(row, 0), row);
}

TEST_F(FakeLog, OnlyRowsThatWereNotPreviewedAreMovedAtTheEnd) {
  write(0, 4);
  log_.start_preview();
  write(4, 6);
  fake::reset_counts();
  log_.move_to_host();
  EXPECT_EQ(fake::counts().device_to_host_copies, 1);
  EXPECT_EQ(fake::counts().device_to_host_bytes, 8);
  for (int row = 0; row < 6; ++row) EXPECT_EQ(log_.value(row, 0), row);
}

TEST_F(FakeLog, ClearDropsAPreviewUnderWay) {
  const fake::LateCopies late;
  write(10, 14);
  log_.start_preview();
  log_.clear();
  write(0, 2);
  EXPECT_EQ(log_.value(0, 0), std::nullopt);
  log_.start_preview();
  log_.move_to_host();
  EXPECT_EQ(log_.value(0, 0), 0);
  EXPECT_EQ(log_.value(1, 0), 1);
}

TEST_F(FakeLog, ClearLetsANewPreviewBegin) {
  const fake::LateCopies late;
  write(10, 14);
  log_.start_preview();
  log_.clear();
  write(0, 2);
  fake::reset_counts();
  log_.start_preview();
  EXPECT_EQ(fake::counts().device_to_host_bytes, 8);
  while (log_.rows_on_host() == 0) continue;
  EXPECT_EQ(log_.rows_on_host(), 2);
  EXPECT_EQ(log_.value(1, 0), 1);
  EXPECT_EQ(fake::counts().host_waits(), 0);
}

}  // namespace
}  // namespace kindling
