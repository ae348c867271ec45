// What is printed arrives, or the exit code says that it did not.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>

#include "cli/commands/program_run.h"
#include "support/scratch.h"

namespace kindling {
namespace {

const std::string kFitDigits =
    "-c '" + (kConfigs / "digits_mlp.toml").string() + "' trainer.max_epochs=1 --progress none ";

struct ShellRun {
  int exit_code;
  std::string err;
};

// `pipeline` holds the program as $0; its stderr is kept.
ShellRun run_in_shell(const std::string& pipeline, const Scratch& scratch) {
  const std::string err = (scratch / "err.txt").string();
  std::ofstream(scratch / "run.sh") << "exec 2> '" << err
                                    << "'\nkindling() { '" KINDLING_PROGRAM "' \"$@\"; }\n"
                                    << pipeline << "\n";
  const int status = std::system(("bash '" + (scratch / "run.sh").string() + "'").c_str());
  return {WEXITSTATUS(status), text_of(err)};
}

class PrintingCommand : public testing::TestWithParam<std::string> {};

TEST_P(PrintingCommand, FailsWhenItsOutputCannotBeWritten) {
  const Scratch scratch;
  const std::string runs = " run.dir='" + scratch.folder().string() + "' ";
  const std::string command = GetParam() == "fit"            ? "fit " + kFitDigits + runs
                              : GetParam() == "print_config" ? "fit --print-config " + kFitDigits
                              : GetParam() == "bench"        ? "bench pair --n 16 --repeats 1"
                              : GetParam() == "list"         ? "list models"
                              : GetParam() == "reference"    ? "reference commands"
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
  EXPECT_NE(run.err.find("stdout: the output cannot be written: No space left on device; make room"),
            std::string::npos)
      << run.err;
}

INSTANTIATE_TEST_SUITE_P(All, PrintingCommand,
                         testing::Values("fit", "validate", "test", "predict", "print_config", "devices",
                                         "bench", "list", "reference", "doctor", "help"),
                         [](const auto& info) { return info.param; });

TEST(Program, EndsQuietlyWhenNobodyReadsOn) {
  const Scratch scratch;
  const ShellRun run = run_in_shell("kindling doctor | :\nexit ${PIPESTATUS[0]}", scratch);
  EXPECT_EQ(run.exit_code, 128 + SIGPIPE);
  EXPECT_EQ(run.err, "");
}

}  // namespace
}  // namespace kindling
