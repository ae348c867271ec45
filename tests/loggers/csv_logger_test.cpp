#include "kindling/loggers/csv_logger.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/log.h"
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

// A run that was stopped after its second epoch.
class DamagedTable : public testing::Test {
 protected:
  DamagedTable() {
    set_log_observer([this](LogLevel, const std::string& text) { log_ += text + "\n"; });
  }
  ~DamagedTable() override { set_log_observer({}); }

  std::string resumed(const std::string& table) {
    if (!table.empty()) write_file_atomically(path_, table);
    CsvLogger logger(path_);
    logger.resume_at({.epoch = 2, .global_step = 20});
    logger.write(epoch_row(3, {{"train_loss", 0.25}}));
    return read_file(path_, 10'000);
  }

  const Scratch scratch_;
  const std::filesystem::path path_ = scratch_ / "metrics.csv";
  const std::string start_ = "epoch,global_step,train_loss\n1,10,0.5\n", end_ = "3,30,0.25\n";
  std::string log_;
};

TEST_F(DamagedTable, LosesRowsThatCannotBeRead) {
  for (const std::string& damage :
       {std::string(4096, '\0') + "\n", std::string("\n"), std::string("2\n"), std::string("2,20,0.5,7\n"),
        std::string("x,20,0.5\n"), std::string("2,20,0.5x\n"), std::string("2,20,\"\n")}) {
    log_.clear();
    EXPECT_EQ(resumed(start_ + damage + "2,20,nan\n3,30,7\n"), start_ + "2,20,nan\n" + end_) << damage;
    EXPECT_EQ(log_, path_.string() + ": 1 line that cannot be read was removed\n");
  }
}

TEST_F(DamagedTable, ReportsMissingRows) {
  const std::string reason = ": the file was damaged, shortened or removed while the run was stopped\n";
  EXPECT_EQ(resumed(start_), start_ + end_);
  EXPECT_EQ(log_, path_.string() + ": the record of epoch 2 is missing" + reason);
  log_.clear();
  std::filesystem::remove(path_);
  EXPECT_EQ(resumed(""), "epoch,global_step,train_loss\n" + end_);
  EXPECT_EQ(log_, path_.string() + ": the records of 2 epochs are missing, the first is epoch 1" + reason);
}

TEST_F(DamagedTable, IsWrittenAgainAfterItsRemoval) {
  CsvLogger logger(path_);
  logger.write(epoch_row(1, {{"train_loss", 0.5}}));
  logger.sync();
  std::filesystem::remove(path_);
  logger.write(epoch_row(2, {{"train_loss", 0.25}}));
  logger.sync();
  EXPECT_EQ(read_file(path_, 1000), start_ + "2,20,0.25\n");
  EXPECT_NE(log_.find("it has been written again"), std::string::npos) << log_;
  std::filesystem::remove(path_);
  logger.write(epoch_row(3, {{"late", 1}}));
  EXPECT_EQ(read_file(path_, 1000), "epoch,global_step,train_loss,late\n1,10,0.5,\n2,20,0.25,\n3,30,,1\n");
}

}  // namespace
}  // namespace kindling
