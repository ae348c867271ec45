// What a fit shows on a terminal that is resized and interrupted.
#include "cli/run/screen.h"

#include <gtest/gtest.h>
#include <sys/ioctl.h>

#include <algorithm>

#include "base/joined.h"
#include "cli/commands/on_terminal.h"
#include "kindling/base/text.h"
#include "kindling/formats/image.h"
#include "support/image_files.h"
#include "support/scratch.h"
#include "support/terminal_emulator.h"

namespace kindling {
namespace {

class ScreenOnTerminal : public testing::Test {
 protected:
  std::vector<std::string> fit(std::vector<std::string> more) {
    write_text(scratch_ / "small.toml",
               "[model]\nname = \"mlp\"\nhidden = [16]\n[data]\nname = \"digits\"\nbatch_size = 100\n"
               "[trainer]\nmax_epochs = 2\n");
    more.insert(more.begin(),
                {"fit", "-c", (scratch_ / "small.toml").string(), "--run.dir", (scratch_ / "runs").string()});
    return more;
  }

  const Scratch scratch_;
  const std::filesystem::path folder_ = scratch_ / "runs/small/0001";
};

std::string without_colors(std::string text) {
  for (std::size_t at; (at = text.find("\x1b[")) != std::string::npos;)
    text.erase(at, text.find_first_of("mKhl", at) + 1 - at);
  return text;
}

// The columns of each progress line, in their order.
std::vector<std::size_t> line_widths(const std::string& screen) {
  const std::string start = "\r\x1b[J";
  std::vector<std::size_t> widths;
  for (std::size_t at = 0; (at = screen.find(start, at)) != std::string::npos;) {
    at += start.size();
    const std::string line = without_colors(screen.substr(at, screen.find('\r', at) - at));
    if (line.starts_with("epoch ") && line.find('/') != std::string::npos)
      widths.push_back(display_width(line));
  }
  return widths;
}

TEST_F(ScreenOnTerminal, FollowsItsWidthAndEndsCleanlyOnCtrlC) {
  bool is_narrow = false, is_interrupted = false;
  const auto shrink_and_interrupt = [&](int terminal, const std::string& screen) {
    const std::vector<std::size_t> widths = line_widths(screen);
    if (!is_narrow && widths.size() >= 2) {
      const winsize narrow{.ws_row = 24, .ws_col = 40, .ws_xpixel = 0, .ws_ypixel = 0};
      ioctl(terminal, TIOCSWINSZ, &narrow);
      is_narrow = true;
    }
    if (is_narrow && !is_interrupted && widths.back() < 40) {
      const char ctrl_c = 3;
      EXPECT_EQ(::write(terminal, &ctrl_c, 1), 1);
      is_interrupted = true;
    }
  };
  const OnTerminal shown = run_on_terminal(fit({"trainer.max_epochs=1000000", "trainer.log_every_n_steps=0"}),
                                           {.on_output = shrink_and_interrupt});
  EXPECT_EQ(shown.exit_code, 130) << shown.screen;
  const std::vector<std::size_t> widths = line_widths(shown.screen);
  ASSERT_GE(widths.size(), 3U) << shown.screen;
  EXPECT_GT(widths.front(), 40U) << shown.screen;
  EXPECT_LT(widths.back(), 40U) << shown.screen;
  EXPECT_LT(*std::max_element(widths.begin(), widths.end()), 100U);
  // The line has been removed before the last lines, and nothing has hidden the cursor.
  const std::size_t end = shown.screen.rfind("stopped after ");
  ASSERT_NE(end, std::string::npos) << shown.screen;
  EXPECT_EQ(shown.screen.find("it/s", end), std::string::npos);
  EXPECT_NE(shown.screen.find("resume with   kindling fit --resume ", end), std::string::npos);
  EXPECT_EQ(shown.screen.find("\x1b[?25"), std::string::npos);
}

// The rows that a terminal shows at the end, after it got 40 columns once `narrowed_at` bytes were shown.
std::vector<std::string> rows_of(const std::string& screen, std::size_t columns, bool rewraps,
                                 std::size_t narrowed_at = std::string::npos) {
  TerminalEmulator terminal(columns, rewraps);
  terminal.print(screen.substr(0, narrowed_at));
  if (narrowed_at < screen.size()) {
    terminal.resize(40);
    terminal.print(screen.substr(narrowed_at));
  }
  EXPECT_TRUE(terminal.wraps());
  return terminal.rows();
}

// The heading, the layers, a row per epoch and the last lines; nothing of a progress line.
void expect_no_progress_line(const std::vector<std::string>& rows) {
  const std::string all = joined(rows, "\n");
  for (const char* part : {"it/s", "━", "eta ", "<00:"})
    EXPECT_EQ(all.find(part), std::string::npos) << part << " in\n" << all;
}

TEST_F(ScreenOnTerminal, LeavesNothingOfALineThatWasDrawnForAWiderTerminal) {
  std::size_t narrowed_at = std::string::npos;
  const auto narrow = [&](int terminal, const std::string& screen) {
    const std::vector<std::size_t> widths = line_widths(screen);
    if (narrowed_at != std::string::npos || widths.size() < 2 || widths.back() < 60) return;
    narrowed_at = screen.size();
    const winsize size{.ws_row = 24, .ws_col = 40, .ws_xpixel = 0, .ws_ypixel = 0};
    ioctl(terminal, TIOCSWINSZ, &size);
  };
  const OnTerminal shown = run_on_terminal(fit({"trainer.max_epochs=60"}), {.on_output = narrow});
  EXPECT_EQ(shown.exit_code, 0) << shown.screen;
  ASSERT_LT(narrowed_at, shown.screen.size()) << shown.screen;
  for (const bool rewraps : {true, false}) {
    const std::vector<std::string> rows = rows_of(shown.screen, 100, rewraps, narrowed_at);
    expect_no_progress_line(rows);
    EXPECT_NE(joined(rows, "\n").find("\nepoch  train loss     acc"), std::string::npos)
        << joined(rows, "\n");
  }
}

TEST_F(ScreenOnTerminal, OmitsColumnsThatANarrowTerminalHasNoRoomFor) {
  const OnTerminal shown = run_on_terminal(fit({"--progress", "none", "--color", "never"}), {.columns = 40});
  EXPECT_EQ(shown.exit_code, 0) << shown.screen;
  const std::size_t layers = shown.screen.find("   layer"), end = shown.screen.find("done in ");
  ASSERT_LT(layers, end) << shown.screen;
  std::istringstream lines(shown.screen.substr(layers, end - layers));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 41U) << line;  // with '\r'
  EXPECT_NE(shown.screen.find("\nepoch  train loss  val acc\r\n"), std::string::npos) << shown.screen;
}

TEST_F(ScreenOnTerminal, BreaksItsLinesWhereANarrowTerminalEnds) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(scratch_.folder());  // for a short path of the run
  const OnTerminal shown = run_on_terminal(
      fit({"run.dir=runs", "--progress", "none", "--color", "never", "early_stopping.monitor=val_loss",
           "early_stopping.mode=min", "early_stopping.stopping_threshold=100"}),
      {.columns = 40});
  std::filesystem::current_path(before);
  EXPECT_EQ(shown.exit_code, 0) << shown.screen;
  EXPECT_NE(
      shown.screen.find("config   small.toml + 5 overrides\r\n         run  runs/small/0001   seed 0\r\n"),
      std::string::npos)
      << shown.screen;
  EXPECT_NE(shown.screen.find("\r\nstopped early: "), std::string::npos) << shown.screen;
  EXPECT_NE(shown.screen.find("\r\n         best val acc 0."), std::string::npos) << shown.screen;
  std::istringstream lines(shown.screen.substr(0, shown.screen.find("next     ")));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 41U) << line;  // with '\r'
}

TEST_F(ScreenOnTerminal, DrawsTheCurvesOfTheLossAtTheEnd) {
  const auto chart_of = [&](const std::string& epochs) {
    const OnTerminal shown = run_on_terminal(
        fit({"trainer.max_epochs=" + epochs, "--progress", "none", "--color", "never"}), {.columns = 60});
    EXPECT_EQ(shown.exit_code, 0) << shown.screen;
    const std::size_t table = shown.screen.find("\nepoch  train loss"), end = shown.screen.find("done in ");
    EXPECT_LT(table, end) << shown.screen;
    if (table >= end) return std::string();
    const std::size_t chart = shown.screen.find("   loss\r\n", table + 2);
    return chart < end ? shown.screen.substr(chart, end - chart) : "";
  };
  const std::string chart = chart_of("3");
  EXPECT_NE(chart.find("train_loss"), std::string::npos) << chart;
  EXPECT_NE(chart.find("val_loss"), std::string::npos) << chart;
  EXPECT_GT(std::ranges::count(chart, '\n'), 8) << chart;
  std::istringstream lines(chart);
  for (std::string line; std::getline(lines, line, '\r');) EXPECT_LE(display_width(line), 61U) << line;
  EXPECT_EQ(chart_of("2"), "");  // too few points
}

TEST_F(ScreenOnTerminal, ColorsTheBestRowUnlessColorsAreOff) {
  const std::string green = "\x1b[32m    1  ";
  const OnTerminal colored = run_on_terminal(fit({}));
  EXPECT_EQ(colored.exit_code, 0);
  EXPECT_NE(colored.screen.find(green), std::string::npos) << colored.screen;
  EXPECT_GT(colored.screen.rfind("\x1b[0m"), colored.screen.rfind("\x1b[32m"));
  for (const OnTerminal& plain : {run_on_terminal(fit({}), {.variable = "NO_COLOR", .value = "1"}),
                                  run_on_terminal(fit({"--color", "never"}))}) {
    EXPECT_EQ(plain.exit_code, 0);
    EXPECT_EQ(plain.screen.find("\x1b[3"), std::string::npos) << plain.screen;
    EXPECT_NE(plain.screen.find("epoch  train loss"), std::string::npos);
  }
}

// The screen after an error: the progress line has been removed, no color is left, no cursor was hidden.
void expect_clean_end(const OnTerminal& shown, const std::string& error) {
  const std::size_t at = shown.screen.find(error);
  ASSERT_NE(at, std::string::npos) << shown.screen;
  const std::size_t line = shown.screen.rfind("it/s", at), cleared = shown.screen.rfind("\r\x1b[J", at);
  ASSERT_NE(line, std::string::npos) << shown.screen;
  EXPECT_GT(cleared, line) << shown.screen;
  EXPECT_EQ(shown.screen.find("it/s", at), std::string::npos) << shown.screen;
  expect_no_progress_line(rows_of(shown.screen, 100, /*rewraps=*/true));
  EXPECT_EQ(shown.screen.find("\x1b[?25"), std::string::npos) << shown.screen;
  const std::size_t color = shown.screen.rfind("\x1b[3");
  ASSERT_NE(color, std::string::npos) << shown.screen;
  const std::size_t reset = std::min(shown.screen.find("\x1b[0m", color), shown.screen.find("\x1b[m", color));
  EXPECT_NE(reset, std::string::npos) << shown.screen;
}

TEST_F(ScreenOnTerminal, IsCleanAfterAnExceptionInAFit) {
  const auto remove_checkpoints = [&](int, const std::string& screen) {
    if (screen.find("it/s") == std::string::npos || !std::filesystem::exists(folder_ / "checkpoints") ||
        std::filesystem::exists(folder_ / "before"))
      return;
    std::filesystem::rename(folder_ / "checkpoints", folder_ / "before");
    write_text(folder_ / "checkpoints", "in the way");
  };
  const OnTerminal shown = run_on_terminal(fit({"trainer.max_epochs=1000000", "trainer.log_every_n_steps=0"}),
                                           {.on_output = remove_checkpoints});
  EXPECT_EQ(shown.exit_code, 1) << shown.screen;
  expect_clean_end(shown, (folder_ / "checkpoints").string());
}

TEST_F(ScreenOnTerminal, IsCleanAfterAnExceptionOfTheDataInAFit) {
  if (!can_read_png()) GTEST_SKIP() << "built without libpng";
  const std::filesystem::path images = scratch_ / "images", image = images / "day/100.png";
  write_day_and_night(images, 20);
  const auto remove_image = [&](int, const std::string& screen) {
    if (screen.find("it/s") != std::string::npos) std::filesystem::remove(image);
  };
  const OnTerminal shown = run_on_terminal(
      fit({"model.num_classes=2", "data.name=image_folder", "data.root=" + images.string(), "data.val=[0,4]",
           "data.batch_size=4", "trainer.max_epochs=1000000", "trainer.log_every_n_steps=0"}),
      {.on_output = remove_image});
  EXPECT_EQ(shown.exit_code, 3) << shown.screen;
  expect_clean_end(shown, image.string());
}

TEST_F(ScreenOnTerminal, IsCleanAfterADivergedFit) {
  const OnTerminal shown = run_on_terminal(fit({"optimizer.name=sgd", "optimizer.lr=1e30"}));
  EXPECT_EQ(shown.exit_code, 4) << shown.screen;
  expect_clean_end(shown, "diverged after ");
}

TEST_F(ScreenOnTerminal, ShowsALossThatIsNotFiniteInRed) {
  const OnTerminal shown =
      run_on_terminal(fit({"optimizer.name=sgd", "optimizer.lr=1e30", "trainer.on_nonfinite=ignore"}));
  EXPECT_EQ(shown.exit_code, 0) << shown.screen;
  EXPECT_NE(shown.screen.find("    2  \x1b[31m       nan  \x1b[0m"), std::string::npos) << shown.screen;
  EXPECT_EQ(shown.screen.find("\x1b[32m    2  "), std::string::npos) << shown.screen;  // it is not the best
}

TEST_F(ScreenOnTerminal, ShowsTimeLeftAndMemory) {
  const OnTerminal shown = run_on_terminal(fit({"trainer.max_epochs=60"}), {.columns = 160});
  EXPECT_EQ(shown.exit_code, 0);
  EXPECT_NE(shown.screen.find(" it/s  eta 00:"), std::string::npos) << shown.screen;
  EXPECT_NE(shown.screen.find("  mem "), std::string::npos) << shown.screen;
}

TEST(RunTimeLeft, ExtrapolatesTheSpeedSinceTheStart) {
  RunTimeLeft left;
  EXPECT_EQ(left.estimate({.epoch = 0, .batch = 5}, {.max_epochs = 3, .num_batches = 10}, 20), -1);
  left.start({}, 10);
  EXPECT_EQ(left.estimate({}, {.max_epochs = 3, .num_batches = 10}, 10), -1) << "nothing done yet";
  EXPECT_EQ(left.estimate({.epoch = 0, .batch = 5}, {.max_epochs = 3, .num_batches = 10}, 20), 50);
  EXPECT_EQ(left.estimate({.epoch = 2, .batch = 10}, {.max_epochs = 3, .num_batches = 10}, 40), 0);
}

TEST(RunTimeLeft, CountsOnlyWhatThisProcessHasDone) {
  RunTimeLeft left;
  left.start({.epoch = 1, .batch = 5, .global_step = 15}, 0);
  EXPECT_EQ(left.estimate({.epoch = 2, .batch = 0}, {.max_epochs = 3, .num_batches = 10}, 10), 20);
  EXPECT_EQ(left.estimate({.global_step = 20}, {.max_steps = 100}, 10), 160);
}

TEST(RunTimeLeft, TakesTheLimitThatIsReachedFirst) {
  RunTimeLeft left;
  left.start({}, 0);
  const Progress at{.epoch = 0, .batch = 10, .global_step = 10};
  EXPECT_EQ(left.estimate(at, {.max_epochs = 2, .max_steps = 1000, .num_batches = 20}, 10), 30);
  EXPECT_EQ(left.estimate(at, {.max_epochs = 200, .max_steps = 15, .num_batches = 20}, 10), 5);
  EXPECT_EQ(left.estimate(at, {.max_epochs = 2}, 10), -1) << "unknown number of batches";
}

}  // namespace
}  // namespace kindling
