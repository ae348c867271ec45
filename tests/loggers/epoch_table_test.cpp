#include "kindling/loggers/epoch_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>

namespace kindling {
namespace {

Record epoch(std::int64_t number, std::vector<std::pair<std::string, double>> values) {
  return {
      .kind = Record::Kind::epoch, .global_step = 10 * number, .epoch = number, .values = std::move(values)};
}

TEST(EpochTable, ShowsOneRowPerEpochAndMarksTheBest) {
  std::ostringstream out;
  EpochTable table(out, {.monitor = "val_acc", .higher_is_better = true});
  const auto row = [&](std::int64_t number, double loss, double accuracy) {
    table.write(epoch(number, {{"train_loss", loss},
                               {"train_acc", 0.897},
                               {"val_loss", 0.0921},
                               {"val_acc", accuracy},
                               {"lr", 0.001},
                               {"epoch_time_s", 11.2},
                               {"host_waits", 0}}));
  };
  row(1, 0.34119, 0.971);
  row(2, 0.0812, 0.96);
  row(3, 2e-4, 0.981);
  EXPECT_EQ(out.str(),
            "epoch  train loss     acc  val loss  val acc   time       lr\n"
            "    1      0.3412  0.8970    0.0921   0.9710  11.2s     1e-3   * best\n"
            "    2      0.0812  0.8970    0.0921   0.9600  11.2s     1e-3\n"
            "    3        2e-4  0.8970    0.0921   0.9810  11.2s     1e-3   * best\n");
}

TEST(EpochTable, AddsUserDefinedNamesButNoBookkeeping) {
  std::ostringstream out;
  EpochTable table(out);
  table.write(epoch(1, {{"perplexity", 41.25},
                        {"train_loss", 3},
                        {"samples_per_s", 1},
                        {"data_wait_share", 1},
                        {"host_waits", 1},
                        {"device_to_host_copies", 1},
                        {"device_to_host_bytes", 1},
                        {"host_to_device_bytes", 1}}));
  table.write(epoch(2, {{"train_loss", std::nan("")}, {"late", 1}}));
  EXPECT_EQ(out.str(),
            "epoch  train loss  perplexity\n"
            "    1      3.0000     41.2500\n"
            "    2         nan\n");
}

TEST(EpochTable, NeverMarksAnEpochWithoutFiniteLossesAsTheBest) {
  std::ostringstream out;
  EpochTable table(out, {.monitor = "val_acc", .higher_is_better = true});
  table.write(epoch(1, {{"train_loss", std::nan("")}, {"val_acc", 0.3}}));
  table.write(epoch(2, {{"train_loss", 2}, {"val_acc", 0.1}}));
  table.write(epoch(3, {{"train_loss", HUGE_VAL}, {"val_acc", 0.2}}));
  EXPECT_EQ(out.str(),
            "epoch  train loss  val acc\n"
            "    1         nan   0.3000\n"
            "    2      2.0000   0.1000   * best\n"
            "    3         inf   0.2000\n");
}

TEST(EpochTable, NeverMarksNanAsTheBest) {
  std::ostringstream out;
  EpochTable table(out, {.monitor = "val_loss"});
  table.write(epoch(1, {{"val_loss", std::nan("")}}));
  table.write(epoch(2, {{"val_loss", 2}}));
  table.write(epoch(3, {{"val_loss", 2}}));
  EXPECT_EQ(out.str(), "epoch  val loss\n    1       nan\n    2    2.0000   * best\n    3    2.0000\n");
}

TEST(EpochTable, AlignsNamesOfWideCharactersAndCombiningMarks) {
  std::ostringstream out;
  EpochTable table(out, {.monitor = "困惑度指标", .higher_is_better = true});
  table.write(epoch(1, {{"困惑度指标", 41.25}, {"pre\xcc\x81\x63ision", 0.5}, {"x", 1}}));
  EXPECT_EQ(out.str(),
            "epoch  困惑度指标  pre\xcc\x81\x63ision         x\n"
            "    1     41.2500     0.5000    1.0000   * best\n");
}

TEST(EpochTable, ShowsADivergedLossWithoutASign) {
  std::ostringstream out;
  EpochTable table(out);
  table.write(epoch(1, {{"train_loss", -std::nan("")}, {"x", -std::nan("")}}));
  EXPECT_EQ(out.str(), "epoch  train loss         x\n    1         nan       nan\n");
}

TEST(EpochTable, OmitsTheNumbersOfLargeMetrics) {
  std::ostringstream out;
  EpochTable table(out, {.monitor = "val_f1[1]", .higher_is_better = true});
  table.write(epoch(1, {{"val_f1[0]", 0.25}, {"val_f1[1]", 0.5}, {"val_cells[0][1]", 7}}));
  EXPECT_EQ(out.str(), "epoch  val_f1[1]\n    1     0.5000   * best\n");
}

TEST(EpochTable, KeepsColumnsAlignedWithLongNamesAndLargeNumbers) {
  std::ostringstream out;
  EpochTable table(out);
  const auto row = [&](std::int64_t number, double value, double accuracy, double seconds) {
    table.write(epoch(number, {{"train_loss", value},
                               {"val_loss", value},
                               {"val_acc", accuracy},
                               {"lr", value},
                               {"epoch_time_s", seconds},
                               {"skipped_steps", 3},
                               {"validation_macro_averaged_precision", value}}));
  };
  row(1, 0.0123456, 0.5, 9.9);
  row(2, 98765.4321, 97.1234, 99.99);
  row(3, -1.2346e-107, 100, 3599);
  row(4, -1.2346e9, 12345.6, 7200);
  row(5, std::numeric_limits<double>::infinity(), 1e9, 500000);
  EXPECT_EQ(out.str(),
            "epoch  train loss  val loss  val acc   time       lr  skipped_steps  "
            "validation_macro_averaged_precision\n"
            "    1      0.0123    0.0123   0.5000  9.90s  0.01235              3"
            "                               0.0123\n"
            "    2  98765.4321     98765  97.1234  01:40    98765              3"
            "                           98765.4321\n"
            "    3  -1.23e-107   -1e-107      100  59:59  -1e-107              3"
            "                          -1.235e-107\n"
            "    4    -1.235e9  -1.235e9    12346  2.00h  -1.23e9              3"
            "                             -1.235e9\n"
            "    5         inf       inf      1e9   139h      inf              3"
            "                                  inf\n");
}

TEST(EpochTable, ColorsTheBestRowAndNumbersThatAreNotFinite) {
  std::ostringstream out;
  EpochTable table(out, {.monitor = "val_loss", .color = true});
  table.write(epoch(1, {{"train_loss", std::nan("")}, {"val_loss", 2}}));
  table.write(epoch(2, {{"train_loss", 1}, {"val_loss", 3}}));
  table.write(epoch(3, {{"train_loss", 1}, {"val_loss", std::nan("")}}));
  EXPECT_EQ(out.str(),
            "epoch  train loss  val loss\n"
            "    1  \x1b[31m       nan  \x1b[0m  2.0000\n"  // a diverged epoch is not the best
            "\x1b[32m    2      1.0000    3.0000   * best\x1b[0m\n"
            "    3      1.0000  \x1b[31m     nan\x1b[0m\n");
}

TEST(EpochTable, OmitsTheLeastImportantColumnsInANarrowTerminal) {
  const auto header = [](int width, const std::string& monitor) {
    std::ostringstream out;
    EpochTable table(out, {.monitor = monitor, .higher_is_better = true, .max_width = width});
    table.write(epoch(1, {{"train_loss", 2},
                          {"train_acc", 0.5},
                          {"val_loss", 2},
                          {"val_acc", 0.5},
                          {"val_f1", 0.5},
                          {"lr", 0.001},
                          {"epoch_time_s", 11.2}}));
    const std::string text = out.str(), titles = text.substr(0, text.find('\n')),
                      row = text.substr(titles.size() + 1);
    EXPECT_LE(row.size(), static_cast<std::size_t>(width) + 1) << "with the end of its line";
    EXPECT_TRUE(row.ends_with(" * best\n")) << row;
    return titles;
  };
  EXPECT_EQ(header(79, "val_acc"), "epoch  train loss     acc  val loss  val acc   time       lr    val_f1");
  EXPECT_EQ(header(78, "val_acc"), "epoch  train loss     acc  val loss  val acc   time    val_f1");
  EXPECT_EQ(header(60, "val_acc"), "epoch  train loss     acc  val loss  val acc");
  EXPECT_EQ(header(40, "val_acc"), "epoch  train loss  val acc");
  EXPECT_EQ(header(40, "val_f1"), "epoch  train loss    val_f1");
  EXPECT_EQ(header(24, "val_acc"), "epoch  val acc");
}

TEST(EpochTable, IgnoresSteps) {
  std::ostringstream out;
  EpochTable table(out);
  table.write({.kind = Record::Kind::step, .global_step = 1, .epoch = 1, .values = {{"train_loss_step", 1}}});
  EXPECT_EQ(out.str(), "");
}

}  // namespace
}  // namespace kindling
