#include "kindling/loggers/csv_logger.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kindling/base/error.h"
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

TEST(CsvLogger, WidensTheTableForAnyNamesAndNumbers) {
  const Scratch scratch;
  CsvLogger logger(scratch / "metrics.csv");
  logger.write(epoch_row(1, {{"a\nb", 1}, {"say \"x\"", -2.5e-300}}));
  logger.write(epoch_row(2, {{"a\nb", std::nan("")}}));
  logger.write(epoch_row(3, {{"c,d", 3}, {"e", 4}}));
  logger.write(epoch_row(4, {{"last", 5}}));
  EXPECT_EQ(read_file(scratch / "metrics.csv", 1000),
            "epoch,global_step,\"a\nb\",\"say \"\"x\"\"\",\"c,d\",e,last\n"
            "1,10,1,-2.5e-300,,,\n2,20,nan,,,,\n3,30,,,3,4,\n4,40,,,,,5\n");
}

TEST(CsvLogger, KeepsNoRowsInMemory) {
  const Scratch scratch;
  CsvLogger logger(scratch / "metrics.csv");
  logger.write(epoch_row(1, {{"train_loss", 0.5}}));
  const std::size_t before = mallinfo2().uordblks;
  for (int i = 2; i <= 5000; ++i) logger.write(epoch_row(i, {{"train_loss", 0.5}}));
  EXPECT_LT(mallinfo2().uordblks, before + 10'000) << "5000 records take over 400 KB";
  logger.write(epoch_row(5001, {{"late", 1}}));
  const std::string text = read_file(scratch / "metrics.csv", 1'000'000);
  EXPECT_EQ(std::ranges::count(text, '\n'), 5002);
  EXPECT_TRUE(text.ends_with("\n5000,50000,0.5,\n5001,50010,,1\n")) << text.substr(text.size() - 60);
}

TEST(CsvLogger, RefusesToWidenAForeignFile) {
  const Scratch scratch;
  CsvLogger logger(scratch / "metrics.csv");
  logger.write(epoch_row(1, {{"train_loss", 0.5}}));
  write_file_atomically(scratch / "metrics.csv", "my;own;table\n");
  EXPECT_THROW(logger.write(epoch_row(2, {{"late", 1}})), Error);
  EXPECT_EQ(read_file(scratch / "metrics.csv", 1000), "my;own;table\n");
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
