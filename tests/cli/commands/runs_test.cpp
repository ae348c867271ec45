#include <gtest/gtest.h>

#include "cli/commands/program_run.h"

namespace kindling {
namespace {

class RunsCommand : public testing::Test {
 protected:
  void make(const std::string& name, const std::string& summary) {
    std::filesystem::create_directories(scratch_ / name);
    write_text(scratch_ / name / "run.json", summary);
  }

  const Scratch scratch_;
};

TEST_F(RunsCommand, SortsInTheDirectionThatTheRunRecords) {
  for (const auto& [name, value] : {std::pair("x/0001", "0.2"), {"x/0002", "0.9"}})
    make(name, R"({"status": "finished", "best": {"name": "val_gap", "epoch": 1, "mode": "min", "value": )" +
                   std::string(value) + "}}");
  const ProgramRun run = run_program({"runs", scratch_.folder(), "--sort", "best"});
  EXPECT_LT(run.out.find("x/0002"), run.out.find("x/0001")) << run.out;  // the best is last
  const ProgramRun largest = run_program({"runs", scratch_.folder(), "--sort", "best", "--mode", "max"});
  EXPECT_LT(largest.out.find("x/0001"), largest.out.find("x/0002")) << largest.out;
}

TEST_F(RunsCommand, ListsRuns) {
  make("a/0001",
       R"({"status": "finished", "best": {"name": "val_acc", "value": 0.25, "epoch": 2}, "seconds": 65.2})");
  const ProgramRun run = run_program({"runs", scratch_.folder().string(), "--sort", "best"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.out.find("a/0001   finished   val_acc   0.2500"), std::string::npos) << run.out;
  const ProgramRun none = run_program({"runs", (scratch_ / "none").string()});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_EQ(none.err, (scratch_ / "none").string() +
                          ": no such directory; expected: the directory of runs; kindling fit writes to "
                          "the directory of the key run.dir, by default runs\n");
}

}  // namespace
}  // namespace kindling
