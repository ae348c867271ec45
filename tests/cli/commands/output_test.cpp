// All output arrives, or the exit code reports the loss.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/commands/process.h"
#include "cli/commands/program_run.h"
#include "cli/commands/shell_run.h"
#include "support/scratch.h"

namespace kindling {
namespace {

const std::string kFitDigits =
    "-c '" + (kConfigs / "digits_mlp.toml").string() + "' trainer.max_epochs=1 --progress none ";

class PrintingCommand : public testing::TestWithParam<std::string> {};

TEST_P(PrintingCommand, FailsWhenItsOutputCannotBeWritten) {
  const Scratch scratch;
  const std::string runs = " run.dir='" + scratch.folder().string() + "' ";
  const std::string command = GetParam() == "fit"            ? "fit " + kFitDigits + runs
                              : GetParam() == "print_config" ? "fit --print-config " + kFitDigits
                              : GetParam() == "bench"        ? "bench pair --n 16 --repeats 1"
                              : GetParam() == "list"         ? "list models"
                              : GetParam() == "help"         ? "--help"
                                                             : GetParam();
  std::string before;
  std::string words = command;
  if (command == "validate" || command == "test" || command == "predict") {
    before = "kindling fit --quiet " + kFitDigits + runs + " > /dev/null\n";
    words += " " + kFitDigits + "--weights '" + (scratch / "digits_mlp/0001").string() + "'";
  }
  const ShellRun run = run_in_shell(before + "kindling " + words + " > /dev/full", scratch);
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_NE(run.err.find("stdout: cannot write the output: No space left on device; free some space"),
            std::string::npos)
      << run.err;
}

INSTANTIATE_TEST_SUITE_P(All, PrintingCommand,
                         testing::Values("fit", "validate", "test", "predict", "print_config", "devices",
                                         "bench", "list", "doctor", "help"),
                         [](const auto& info) { return info.param; });

// A fit trains to its end, reports lost output once, and fails.
class UnreadFit : public testing::Test {
 protected:
  // `redirection` of standard output; $big is a file as large as the limit for files is.
  void expect_complete(const std::string& redirection, const std::string& reason,
                       const std::string& more = "") {
    SCOPED_TRACE(redirection + more);
    const Scratch scratch;
    const std::string runs = " run.dir='" + scratch.folder().string() + "' ";
    const ShellRun run = run_in_shell("big='" + (scratch / "big.txt").string() +
                                          "'\nhead -c 4194304 /dev/zero >\"$big\"\n"
                                          "ulimit -f 4096\nkindling fit " +
                                          kFitDigits + "trainer.max_epochs=2 " + more + runs + redirection +
                                          "\nexit ${PIPESTATUS[0]}",
                                      scratch);
    EXPECT_EQ(run.exit_code, 1) << run.err;
    const std::string text = "stdout: cannot write the output: " + reason;
    const std::filesystem::path folder = scratch / "digits_mlp/0001";
    const std::string log = text_of(folder / "log.txt");
    for (const std::string& said : {run.err, log}) {
      EXPECT_NE(said.find(text), std::string::npos) << said;
      EXPECT_EQ(said.find(text), said.rfind(text)) << said;
      EXPECT_EQ(said.find("restart"), std::string::npos) << said;
    }
    EXPECT_EQ(nlohmann::json::parse(text_of(folder / "run.json"))["status"], "finished");
    EXPECT_NE(text_of(folder / "metrics.csv").find("\n2,"), std::string::npos);
  }
};

TEST_F(UnreadFit, TrainsToItsEndWhenThePipeIsClosed) {
  expect_complete("| :",
                  "Broken pipe; keep its reader running, or redirect it to a file; training continues");
  expect_complete("| :", "Broken pipe", "trainer.num_processes=2 distributed.max_restarts=1");
}

TEST_F(UnreadFit, TrainsToItsEndWhenTheDiskIsFull) {
  expect_complete("> /dev/full",
                  "No space left on device; free some space, or redirect it elsewhere; training continues");
}

TEST_F(UnreadFit, TrainsToItsEndAtTheLimitForFiles) {
  expect_complete(">> \"$big\"", "File too large; raise the limit (ulimit -f), or redirect it elsewhere");
}

TEST(Program, EndsQuietlyWhenItsReaderStops) {
  const Scratch scratch;
  const ShellRun run = run_in_shell("kindling doctor | :\nexit ${PIPESTATUS[0]}", scratch);
  EXPECT_EQ(run.exit_code, 128 + SIGPIPE);
  EXPECT_EQ(run.err, "");
}

}  // namespace
}  // namespace kindling
