#include "kindling/loggers/progress_line.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "kindling/base/text.h"

namespace kindling {
namespace {

ProgressState middle() {
  ProgressState state;
  state.at.epoch = 1;
  state.max_epochs = 3;
  state.at.batch = 612;
  state.num_batches = 938;
  state.elapsed_s = 7.277;
  state.values = {{"loss", 0.08123}, {"acc", 0.975}};
  state.data_share = 0.03;
  return state;
}

const std::string kMiddle =
    "epoch 2/3  ━━━━━━━━━─────  612/938  65%  00:07<00:04  84.1 it/s  loss 0.0812  acc 0.9750  data 3%";

TEST(ProgressText, ShowsThePositionOfTheRun) {
  EXPECT_EQ(progress_text(middle(), 200, true), kMiddle);
  EXPECT_EQ(progress_text(middle(), 200, false),
            "epoch 2/3  612/938  65%  00:07<00:04  84.1 it/s  loss 0.0812  acc 0.9750  data 3%");
}

TEST(ProgressText, DropsPartsFromTheRightToFitTheWidth) {
  EXPECT_EQ(display_width(kMiddle), 97u);
  EXPECT_EQ(progress_text(middle(), 97, true), kMiddle);
  EXPECT_EQ(progress_text(middle(), 96, true), kMiddle.substr(0, kMiddle.find("  data")));
  for (int width = 0; width < 100; ++width) {
    const std::string text = progress_text(middle(), width, true);
    EXPECT_LE(display_width(text), static_cast<std::size_t>(width));
    EXPECT_TRUE(kMiddle.starts_with(text));
  }
}

TEST(ProgressText, ShowsTheTimeLeftOfTheRunAndTheMemory) {
  ProgressState state = middle();
  state.run_left_s = 3723;
  state.memory_bytes = 1181116006;
  EXPECT_EQ(progress_text(state, 200, false),
            "epoch 2/3  612/938  65%  00:07<00:04  84.1 it/s  eta 1:02:03  loss 0.0812  acc 0.9750  data 3%  "
            "mem 1.1 GiB");
}

TEST(ProgressText, CountsTheBatchesOfARunningValidation) {
  ProgressState state = middle();
  state.values.clear();
  state.data_share = -1;
  state.val_batch = 12;
  state.num_val_batches = 40;
  state.elapsed_s = 3;
  EXPECT_EQ(progress_text(state, 200, true),
            "epoch 2/3  ━━━━──────────  val 12/40  30%  00:03<00:07  4 it/s");
  EXPECT_EQ(progress_text(state, 40, true), "epoch 2/3  ━━━━──────────  val 12/40");
}

TEST(ProgressText, CountsTheColumnsOfANameInChinese) {
  ProgressState state;
  state.values = {{"损失", 0.5}};
  const std::string whole = "epoch 1  0  00:00  0 it/s  损失 0.5000";
  EXPECT_EQ(progress_text(state, 38, true), whole);
  EXPECT_EQ(progress_text(state, 37, true), "epoch 1  0  00:00  0 it/s");
}

TEST(ProgressText, ShowsADivergedLossWithoutASign) {
  ProgressState state;
  state.values = {{"loss", -std::nan("")}};
  EXPECT_EQ(progress_text(state, 80, true), "epoch 1  0  00:00  0 it/s  loss nan");
}

TEST(ProgressText, OmitsUnknownParts) {
  ProgressState state;
  state.at.global_step = 40;
  state.max_steps = 120;
  state.at.batch = 40;
  EXPECT_EQ(progress_text(state, 200, true), "epoch 1  step 40/120  40  00:00  0 it/s");
}

TEST(ProgressText, DrawsEmptyAndFullBars) {
  ProgressState state = middle();
  state.at.batch = 0;
  EXPECT_EQ(progress_text(state, 40, true), "epoch 2/3  ──────────────  0/938  0%");
  state.at.batch = 938;
  EXPECT_EQ(progress_text(state, 40, true), "epoch 2/3  ━━━━━━━━━━━━━━  938/938  100%");
}

TEST(ProgressLine, RedrawsABarInPlaceTenTimesASecond) {
  double now = 100;
  std::ostringstream out;
  ProgressLine line(out,
                    {.mode = ProgressMode::bar, .color = false, .width = 120, .clock = [&] { return now; }});
  EXPECT_TRUE(line.due());
  line.show(middle());
  EXPECT_EQ(out.str(), "\r\x1b[K" + kMiddle);
  now = 100.05;
  EXPECT_FALSE(line.due());
  now = 100.11;
  EXPECT_TRUE(line.due());
  out.str("");
  line.clear();
  line.clear();
  EXPECT_EQ(out.str(), "\r\x1b[K");
}

TEST(ProgressLine, StaysBelowTheTerminalsWidth) {
  std::ostringstream out;
  ProgressLine line(out, {.mode = ProgressMode::bar, .width = 97, .clock = [] { return 0.0; }});
  line.show(middle());
  EXPECT_EQ(out.str(), "\r\x1b[K" + kMiddle.substr(0, kMiddle.find("  data")));
}

TEST(ProgressLine, FollowsTheWidthOfAResizedTerminal) {
  std::ostringstream out;
  int columns = 200;
  ProgressLine line(out, {.mode = ProgressMode::bar, .columns = [&] { return columns; }});
  line.show(middle());
  EXPECT_EQ(out.str(), "\r\x1b[K" + kMiddle);
  for (columns = 100; columns >= 0; --columns) {
    out.str("");
    line.show(middle());
    EXPECT_LE(display_width(out.str().substr(4)), static_cast<std::size_t>(std::max(columns - 1, 0)));
  }
}

TEST(ProgressLine, ColorsTheDonePartOfTheBar) {
  std::ostringstream out;
  ProgressLine line(out,
                    {.mode = ProgressMode::bar, .color = true, .width = 36, .clock = [] { return 0.0; }});
  line.show(middle());
  EXPECT_EQ(out.str(), "\r\x1b[Kepoch 2/3  \x1b[32m━━━━━━━━━\x1b[0m─────  612/938");
}

TEST(ProgressLine, WritesPlainLinesEveryThirtySecondsWithoutEscapes) {
  double now = 100;
  std::ostringstream out;
  ProgressLine line(out,
                    {.mode = ProgressMode::plain, .color = true, .width = 20, .clock = [&] { return now; }});
  now = 129.9;
  EXPECT_FALSE(line.due());
  now = 130;
  EXPECT_TRUE(line.due());
  line.show(middle());
  EXPECT_FALSE(line.due());
  line.clear();
  EXPECT_EQ(out.str(), "epoch 2/3  612/938  65%  00:07<00:04  84.1 it/s  loss 0.0812  acc 0.9750  data 3%\n");
  EXPECT_EQ(out.str().find_first_of("\r\x1b"), std::string::npos);
}

TEST(ProgressLine, IsSilentWhenNotWanted) {
  std::ostringstream out;
  ProgressLine line(out, {.mode = ProgressMode::none});
  EXPECT_FALSE(line.due());
  line.show(middle());
  line.clear();
  EXPECT_EQ(out.str(), "");
}

}  // namespace
}  // namespace kindling
