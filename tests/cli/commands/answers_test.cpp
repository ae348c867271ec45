// What people type, and the exact answers: tests/cli/commands/answers.txt. Its headings are the numbers of
// the 48 kinds of input that need a good answer; further inputs are under "more". KINDLING_WRITE_ANSWERS=1 in
// the environment writes the file again, for a reviewer to read.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands/process.h"
#include "cli/commands/program_run.h"
#include "cli/commands/shell_run.h"
#include "support/scratch.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

const fs::path kAnswers = fs::path(KINDLING_CONFIGS).parent_path() / "tests/cli/commands/answers.txt";

// A command line and what it prints.
struct Answer {
  std::string row;      // "7", the heading before the command
  std::string command;  // "kindling fit nope.toml"
  std::string output;   // with the exit code in its last line
};

// The file has a line "## ROW" before the commands of a row, and a line "$ COMMAND" before each answer.
std::vector<Answer> read_answers() {
  std::vector<Answer> answers;
  std::istringstream lines(text_of(kAnswers));
  std::string row;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("## "))
      row = line.substr(3);
    else if (line.starts_with("$ "))
      answers.push_back({.row = row, .command = line.substr(2), .output = ""});
    else if (!answers.empty())
      answers.back().output += line + "\n";
  }
  return answers;
}

std::vector<std::string> split_words(const std::string& command) {
  std::vector<std::string> words;
  std::istringstream stream(command);
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// Where a test runs does not matter to an answer.
std::string without_folder(std::string text, const std::string& folder) {
  for (std::size_t at = 0; (at = text.find(folder, at)) != std::string::npos;)
    text.replace(at, folder.size(), "DIR");
  return text;
}

// Returns the text without what differs between machines, times, and versions and builds of LibTorch.
std::string without_machine(std::string text) {
  const std::pair<std::regex, const char*> kDiffering[] = {
      {std::regex("device   cpu  .*   precision"), "device   cpu  CPU   precision"},
      {std::regex("LibTorch [0-9.]+"), "LibTorch VERSION"},
      {std::regex("the program is not linked to LibTorch's torch_cuda"), "this LibTorch is a CPU build"},
      {std::regex("(done in|diverged after) [0-9.]+ s"), "$1 TIME s"},
      {std::regex(" +[0-9][0-9.:]*s "), "  TIME "},
      {std::regex("[0-9.,]+ samples/s"), "RATE samples/s"},
      // Infinite sums become NaN or not by the order in which the CPU's kernels add up.
      {std::regex("warning: metrics: val outputs with NaN: [^\n]*\n"), ""},
      {std::regex("([0-9]\\.[0-9]{4})[0-9]{4,}"), "$1..."}};  // digits that depend on the CPU
  for (const auto& [differing, instead] : kDiffering) text = std::regex_replace(text, differing, instead);
  return text;
}

// Runs command lines in a folder with a few configs. Those that train write to the folder `done`.
class Answers : public testing::Test {
 protected:
  void SetUp() override {
    fs::current_path(scratch_.folder());
    ::setenv("KINDLING_DATA", (scratch_ / "data").c_str(), 1);
    write_text(
        "digits.toml",
        "[model]\nname = \"mlp\"\n[data]\nname = \"digits\"\n[optimizer]\nname = \"adam\"\nlr = 0.002\n"
        "[trainer]\nmax_epochs = 1\nnum_threads = 1\nnum_gpus = 0\n");
    write_text("model_and_data.toml", "[model]\nname = \"mlp\"\n[data]\nname = \"digits\"\n");
    write_text("three.toml",
               "[model]\nname = \"mlp\"\nfreeze = [\"net.99.*\"]\n[data]\nname = \"digits\"\n"
               "train = [0, 100000]\n[checkpoint]\nmonitor = \"val_los\"\n[trainer]\nmax_epochs = 1\n");
    write_text(
        "typo.toml",
        "[model]\nname = \"mlp\"\nhiden = [8]\n[data]\nname = \"digits\"\nbatch_size = 0\n[optimizer]\nname "
        "= \"sgd\"\nlr = \"0.1\"\n[trainer]\nmax_epoch = 3\n");
    write_text("unquoted.toml", "[model]\nname = mlp\n");
    write_text("bracket.toml", "[model\nname = \"mlp\"\n");
    write_text("quote.toml", "[model]\nname = \"mlp\n");
    write_text("point.toml", "[optimizer]\nlr = .1\n");
    write_text("case.toml", "[data]\nshuffle = True\n");
    write_text("twice.toml", "[trainer]\nmax_epochs = 1\nmax_epochs = 2\n");
    write_text("tables.toml", "[trainer]\nmax_epochs = 1\n[trainer]\nmax_steps = 2\n");
    write_text("colon.toml", "[trainer]\nmax_epochs: 1\n");
    write_text("list.toml", "[model]\nhidden = [8, 4\n");
    write_text("more.toml", "[model]\nhidden = 8 4\n");
    write_text("scalar.toml", "seed = 1\n[seed]\na = 1\n");
    write_text("dotted.toml", "seed = 1\nseed.a = 2\n");
    write_text("both.toml", "[model]\nname = \"mlp\"\n[[model]]\n");
    write_text("groups.toml", "[[optimizer.groups]]\nmatch = \"*\"\n[optimizer.groups]\n");
    write_text("cases.toml", "[model]\nhidden = [True, 4]\n");
    write_text("spaces.toml", "[model]\nhidden = [8 4]\n");
    write_text("open.toml", "[model]\nhidden = [8, 4\n[data]\n");
    write_text("table.csv", "a,b,c\n1,2,3\n4,5,6\n");
    write_text("people.csv", "age,income,price\n1,2,3\n4,5,6\n");
    write_text("columns.toml",
               "[model]\nname = \"mlp_regressor\"\n[data]\nname = \"csv\"\nfile = \"people.csv\"\n"
               "target = \"price\"\nfeatures = [\"agee\", \"incom\"]\n[trainer]\nmax_epochs = 1\n");
    write_text("empty.toml", "");
    write_text("mnist.toml",
               "[model]\nname = \"mlp\"\n[data]\nname = \"mnist\"\n[trainer]\nmax_epochs = 1\n");
  }
  void TearDown() override {
    fs::current_path(before_);
    ::unsetenv("KINDLING_DATA");
  }
  std::string output_of(const std::string& command) {
    const ProgramRun run = answer_to(command);
    EXPECT_EQ((run.out + run.err).find('\x1b'), std::string::npos) << command;
    EXPECT_EQ((run.out + run.err).find("frame #"), std::string::npos) << command << " printed a stack trace";
    const std::string output = without_folder(run.out + run.err, scratch_.folder().string());
    return without_machine(output) + "-> " + std::to_string(run.exit_code) + "\n";
  }
  // All files below the folder `done`.
  static std::set<fs::path> files_of_runs() {
    std::set<fs::path> files;
    if (!fs::exists("done")) return files;
    for (const auto& entry : fs::recursive_directory_iterator("done")) files.insert(entry.path());
    return files;
  }
  // Commands with a redirection or a pipe run in a shell.
  ProgramRun answer_to(const std::string& command) {
    if (command.find_first_of("|>") != std::string::npos) {
      const ShellRun run = run_in_shell(command + "\nexit ${PIPESTATUS[0]}", scratch_);
      return {.exit_code = run.exit_code, .out = "", .err = run.err};
    }
    std::vector<std::string> words = split_words(command);
    words.erase(words.begin());  // "kindling"
    return run_program(words);
  }

  const fs::path before_ = fs::current_path();
  const Scratch scratch_;
};

TEST_F(Answers, AreAsReviewed) {
  std::string actual;
  const std::vector<Answer> answers = read_answers();
  std::string row;
  for (const Answer& answer : answers) {
    const std::set<fs::path> before = files_of_runs();
    const std::string output = output_of(answer.command);
    if (output.ends_with("-> 2\n") || output.ends_with("-> 3\n")) {
      EXPECT_EQ(files_of_runs(), before) << answer.command << " was refused, but has written to a run";
    }
    // A build for CUDA has another reason for missing GPUs, and may have GPUs.
    const bool is_of_machine = answer.row == "30" && has_cuda_libraries();
    if (!is_of_machine) {
      EXPECT_EQ(output, answer.output) << answer.command;
    }
    if (answer.row != std::exchange(row, answer.row)) actual += "## " + row + "\n";
    actual += "$ " + answer.command + "\n" + output;
    EXPECT_FALSE(fs::exists("runs")) << answer.command << " was refused, but has left a run folder";
  }
  if (std::getenv("KINDLING_WRITE_ANSWERS") != nullptr) write_text(kAnswers, actual);
}

TEST_F(Answers, CoverTheWholeTable) {
  std::set<std::string> missing;
  for (int row = 1; row <= 48; ++row) missing.insert(std::to_string(row));
  for (const Answer& answer : read_answers()) missing.erase(answer.row);
  EXPECT_EQ(missing, std::set<std::string>());
}

}  // namespace
}  // namespace kindling
