#include "kindling/loggers/progress_line.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <sstream>

#include "kindling/base/log.h"
#include "kindling/base/text.h"
#include "support/terminal_emulator.h"

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

const std::string kDraw = "\r\x1b[J\x1b[?7l", kDrawn = "\x1b[?7h\r";

TEST(ProgressLine, RedrawsABarInPlaceTenTimesASecond) {
  double now = 100;
  std::ostringstream out;
  ProgressLine line(out,
                    {.mode = ProgressMode::bar, .color = false, .width = 120, .clock = [&] { return now; }});
  EXPECT_TRUE(line.due());
  line.show(middle());
  EXPECT_EQ(out.str(), kDraw + kMiddle + kDrawn);
  now = 100.05;
  EXPECT_FALSE(line.due());
  now = 100.11;
  EXPECT_TRUE(line.due());
  out.str("");
  line.clear();
  line.clear();
  EXPECT_EQ(out.str(), "\r\x1b[J\r");
}

TEST(ProgressLine, ReadsTheClockInOneOfEightQuickCalls) {
  double now = 100;
  int num_readings = 0;
  std::ostringstream out;
  ProgressLine line(out, {.mode = ProgressMode::bar, .clock = [&] { return ++num_readings, now; }});
  line.show(middle());
  num_readings = 0;
  for (int call = 0; call < 82; ++call) EXPECT_FALSE(line.due());
  EXPECT_EQ(num_readings, 12);  // the second call finds that the first was quick
  now = 101;
  int num_calls = 1;
  while (!line.due()) ++num_calls;
  EXPECT_EQ(num_calls, 8);
  line.show(middle());
  num_readings = 0;
  for (int call = 0; call < 10; ++call) {
    now += 0.005;  // slow calls
    EXPECT_FALSE(line.due());
  }
  EXPECT_EQ(num_readings, 10);
}

TEST(ProgressLine, StaysBelowTheTerminalsWidth) {
  std::ostringstream out;
  ProgressLine line(out, {.mode = ProgressMode::bar, .width = 97, .clock = [] { return 0.0; }});
  line.show(middle());
  EXPECT_EQ(out.str(), kDraw + kMiddle.substr(0, kMiddle.find("  data")) + kDrawn);
}

TEST(ProgressLine, FollowsTheWidthOfAResizedTerminal) {
  std::ostringstream out;
  int columns = 200;
  ProgressLine line(out, {.mode = ProgressMode::bar, .columns = [&] { return columns; }});
  line.show(middle());
  EXPECT_EQ(out.str(), kDraw + kMiddle + kDrawn);
  for (columns = 100; columns >= 0; --columns) {
    out.str("");
    line.show(middle());
    const std::string text = out.str().substr(kDraw.size(), out.str().size() - kDraw.size() - kDrawn.size());
    EXPECT_LE(display_width(text), static_cast<std::size_t>(std::max(columns - 1, 0)));
  }
}

class ResizedTerminal : public testing::TestWithParam<bool> {
 protected:
  // Draws a line on a terminal of each width in turn, below two rows of other output.
  void draw(const std::vector<int>& widths) {
    for (const int width : widths) {
      columns_ = width;
      terminal_.resize(static_cast<std::size_t>(width));
      line_.show(middle());
      print_written();
      EXPECT_EQ(terminal_.rows(), (std::vector<std::string>{"epoch  loss", "    1  0.50",
                                                            progress_text(middle(), width - 1, true)}))
          << width;
    }
  }
  void print_written() {
    terminal_.print(out_.str());
    out_.str("");
    EXPECT_TRUE(terminal_.wraps());
  }

  int columns_ = 120;
  std::ostringstream out_{"epoch  loss\r\n    1  0.50\r\n", std::ios::ate};
  ProgressLine line_{out_, {.mode = ProgressMode::bar, .color = true, .columns = [&] { return columns_; }}};
  TerminalEmulator terminal_{120, /*rewraps=*/GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Rewrapping, ResizedTerminal, testing::Bool());

TEST_P(ResizedTerminal, HasOneProgressLineWithoutRemains) {
  draw({120, 40, 39, 20, 100, 12, 11, 50, 120});
  line_.clear();
  print_written();
  EXPECT_EQ(terminal_.rows(), (std::vector<std::string>{"epoch  loss", "    1  0.50", ""}));
}

TEST_P(ResizedTerminal, IsCleanWhenTheLineIsClearedInANarrowerOne) {
  draw({120});
  terminal_.resize(30);
  line_.clear();
  print_written();
  EXPECT_EQ(terminal_.rows(), (std::vector<std::string>{"epoch  loss", "    1  0.50", ""}));
}

TEST_P(ResizedTerminal, KeepsALineInOneRowThatIsDrawnForAWiderOne) {
  line_.show(middle());
  terminal_.resize(30);  // after the program has read the width
  print_written();
  EXPECT_EQ(terminal_.rows().size(), 3U);
  draw({30});
}

TEST(ProgressLine, IsReplacedByMessagesOfTheLog) {
  testing::internal::CaptureStderr();
  configure_log({.level = LogLevel::warning, .to_stderr = true});
  ProgressLine line(std::cerr, {.mode = ProgressMode::bar, .width = 30, .clock = [] { return 0.0; }});
  line.show(middle());
  log_warning("the first");
  log_warning("the second");
  line.show(middle());
  line.clear();
  log_warning("the third");
  configure_log({});
  TerminalEmulator terminal(100, /*rewraps=*/true);
  std::string text = testing::internal::GetCapturedStderr();
  for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 2) text.insert(at, "\r");
  terminal.print(text);
  EXPECT_EQ(terminal.rows(), (std::vector<std::string>{"warning: the first", "warning: the second",
                                                       "warning: the third", ""}));
}

TEST(ProgressLine, ColorsTheDonePartOfTheBar) {
  std::ostringstream out;
  ProgressLine line(out,
                    {.mode = ProgressMode::bar, .color = true, .width = 36, .clock = [] { return 0.0; }});
  line.show(middle());
  EXPECT_EQ(out.str(), kDraw + "epoch 2/3  \x1b[32m━━━━━━━━━\x1b[0m─────  612/938" + kDrawn);
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
