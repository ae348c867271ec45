#include "kindling/loggers/csv_logger.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kindling/base/file.h"
#include "support/scratch.h"

namespace kindling {
namespace {

Record epoch_row(std::int64_t number, std::vector<std::pair<std::string, double>> values) {
  return {
      .kind = Record::Kind::epoch, .global_step = 10 * number, .epoch = number, .values = std::move(values)};
}

TEST(CsvLogger, WritesARowPerEpochAndNoneForSteps) {
  const Scratch scratch;
  CsvLogger logger(scratch / "metrics.csv");
  logger.write(
      {.kind = Record::Kind::step, .global_step = 1, .epoch = 1, .values = {{"train_loss_step", 9.0}}});
  EXPECT_FALSE(std::filesystem::exists(scratch / "metrics.csv"));
  logger.write(epoch_row(1, {{"train_loss", 0.5}, {"lr", 0.001}}));
  logger.write(epoch_row(2, {{"train_loss", 1.0 / 3}, {"lr", 0.001}}));
  EXPECT_EQ(read_file(scratch / "metrics.csv", 1000),
            "epoch,global_step,train_loss,lr\n1,10,0.5,0.001\n2,20,0.3333333333333333,0.001\n");
}

TEST(CsvLogger, WidensTheTableForALaterName) {
  const Scratch scratch;
  CsvLogger logger(scratch / "metrics.csv");
  logger.write(epoch_row(1, {{"train_loss", 0.5}}));
  logger.write(epoch_row(2, {{"val,loss", 0.25}, {"train_loss", 0.4}}));
  logger.write(epoch_row(3, {{"val,loss", std::numeric_limits<double>::infinity()}}));
  EXPECT_EQ(read_file(scratch / "metrics.csv", 1000),
            "epoch,global_step,train_loss,\"val,loss\"\n1,10,0.5,\n2,20,0.4,0.25\n3,30,,inf\n");
}

TEST(CsvLogger, WritesADivergedLossWithoutASign) {
  const Scratch scratch;
  CsvLogger(scratch / "metrics.csv").write(epoch_row(1, {{"train_loss", -std::nan("")}}));
  EXPECT_EQ(read_file(scratch / "metrics.csv", 1000), "epoch,global_step,train_loss\n1,10,nan\n");
}

TEST(CsvLogger, ReplacesAnOlderFileWithItsFirstRow) {
  const Scratch scratch;
  write_file_atomically(scratch / "metrics.csv", "other,columns\n1,2\n");
  CsvLogger logger(scratch / "metrics.csv");
  logger.write(epoch_row(1, {}));
  EXPECT_EQ(read_file(scratch / "metrics.csv", 1000), "epoch,global_step\n1,10\n");
}

}  // namespace
}  // namespace kindling
