// What people type, and the exact answers: tests/cli/commands/answers.txt. KINDLING_WRITE_ANSWERS=1 in the
// environment writes the file again, for a reviewer to read.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "cli/commands/program_run.h"
#include "support/scratch.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

const fs::path kAnswers = fs::path(KINDLING_CONFIGS).parent_path() / "tests/cli/commands/answers.txt";

// A command line and what it prints.
struct Answer {
  std::string command;  // "kindling fit nope.toml"
  std::string output;   // with the exit code in its last line
};

// The file has a line "$ COMMAND" before each answer.
std::vector<Answer> read_answers() {
  std::vector<Answer> answers;
  std::istringstream lines(text_of(kAnswers));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("$ "))
      answers.push_back({.command = line.substr(2), .output = ""});
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

// Runs command lines in a folder with a few configs.
class Answers : public testing::Test {
 protected:
  void SetUp() override {
    fs::current_path(scratch_.folder());
    ::setenv("KINDLING_DATA", (scratch_ / "data").c_str(), 1);
    write_text(
        "digits.toml",
        "[model]\nname = \"mlp\"\n[data]\nname = \"digits\"\n[trainer]\nmax_epochs = 1\nnum_threads = 1\n");
    write_text(
        "typo.toml",
        "[model]\nname = \"mlp\"\nhiden = [8]\n[data]\nname = \"digits\"\nbatch_size = 0\n[optimizer]\nname "
        "= \"sgd\"\nlr = \"0.1\"\n[trainer]\nmax_epoch = 3\n");
    write_text("unquoted.toml", "[model]\nname = mlp\n");
    write_text("bracket.toml", "[model\nname = \"mlp\"\n");
    write_text("empty.toml", "");
    write_text("mnist.toml",
               "[model]\nname = \"mlp\"\n[data]\nname = \"mnist\"\n[trainer]\nmax_epochs = 1\n");
  }
  void TearDown() override {
    fs::current_path(before_);
    ::unsetenv("KINDLING_DATA");
  }
  std::string output_of(const std::string& command) {
    std::vector<std::string> words = split_words(command);
    words.erase(words.begin());  // "kindling"
    const ProgramRun run = run_program(words);
    EXPECT_EQ((run.out + run.err).find('\x1b'), std::string::npos) << command;
    const std::string output = without_folder(run.out + run.err, scratch_.folder().string());
    return output + "-> " + std::to_string(run.exit_code) + "\n";
  }

  const fs::path before_ = fs::current_path();
  const Scratch scratch_;
};

TEST_F(Answers, AreAsReviewed) {
  std::string actual;
  const std::vector<Answer> answers = read_answers();
  EXPECT_GE(answers.size(), 50u);
  for (const Answer& answer : answers) {
    const std::string output = output_of(answer.command);
    EXPECT_EQ(output, answer.output) << answer.command;
    actual += "$ " + answer.command + "\n" + output;
    EXPECT_FALSE(fs::exists("runs")) << answer.command << " was refused, but has left a run folder";
  }
  if (std::getenv("KINDLING_WRITE_ANSWERS") != nullptr) write_text(kAnswers, actual);
}

}  // namespace
}  // namespace kindling
