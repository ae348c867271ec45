// When JsonlLogger writes step lines.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <sstream>

#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/log.h"
#include "kindling/loggers/jsonl_logger.h"
#include "support/file_faults.h"
#include "support/scratch.h"

namespace kindling {
namespace {

// A logger whose clock stands still until a test moves it.
class BufferedSteps : public testing::Test {
 protected:
  static Record step(std::int64_t number) {
    return {
        .kind = Record::Kind::step, .global_step = number, .epoch = 1, .values = {{"train_loss_step", 0.5}}};
  }
  std::unique_ptr<JsonlLogger> logger() {
    return std::make_unique<JsonlLogger>(path_, [this] { return now_s_; });
  }
  void write_steps(JsonlLogger& logger, std::int64_t first, std::int64_t last) {
    for (std::int64_t number = first; number <= last; ++number) logger.write(step(number));
  }
  std::ptrdiff_t num_writes() const { return std::ranges::count(operations_.calls, "write"); }
  std::ptrdiff_t num_lines() const { return std::ranges::count(read_file(path_, 1 << 20), '\n'); }
  std::string steps_in_file() const {
    std::string steps;
    std::istringstream lines(read_file(path_, 1 << 20));
    for (std::string line; std::getline(lines, line);) steps += line.substr(16, line.find(',') - 16) + " ";
    return steps;
  }

  const Scratch scratch_;
  const std::filesystem::path path_ = scratch_ / "metrics.jsonl";
  double now_s_ = 100;
  CountedCalls operations_;
  const ScopedFileOperations in_force_{operations_};
};

TEST_F(BufferedSteps, AreWrittenTogetherOnceASecond) {
  const auto logger = this->logger();
  logger->write(step(1));
  EXPECT_EQ(num_writes(), 1);
  EXPECT_EQ(num_lines(), 1);
  write_steps(*logger, 2, 500);
  EXPECT_EQ(num_writes(), 1);
  now_s_ += 1;
  logger->write(step(501));
  EXPECT_EQ(num_writes(), 2);
  EXPECT_EQ(num_lines(), 501);
}

TEST_F(BufferedSteps, AreWrittenAtOnceWhereTheyAreRare) {
  const auto logger = this->logger();
  for (int number = 1; number <= 5; ++number) {
    logger->write(step(number));
    EXPECT_EQ(num_lines(), number);
    now_s_ += 1;
  }
}

TEST_F(BufferedSteps, TakeABoundedAmountOfMemory) {
  const auto logger = this->logger();
  write_steps(*logger, 1, 10'000);  // of 58 bytes or more
  EXPECT_GE(num_lines(), 8'000);
  EXPECT_LE(num_writes(), 11);
}

TEST_F(BufferedSteps, AreInTheFileAfterEachEnd) {
  using End = std::function<void(std::unique_ptr<JsonlLogger>&)>;
  const std::vector<std::pair<std::string, End>> ends = {
      {"sync", [](auto& logger) { logger->sync(); }},
      {"finish", [](auto& logger) { logger->finish(); }},
      {"failure", [](auto& logger) { logger->finalize(FitStatus::failed); }},
      {"destructor", [](auto& logger) { logger.reset(); }},
      {"resume", [](auto& logger) { logger->resume_at({.epoch = 0, .global_step = 9}); }},
      {"validation",
       [](auto& logger) { logger->write({.kind = Record::Kind::validation, .global_step = 9, .epoch = 1}); }},
      {"epoch", [](auto& logger) { logger->write({.global_step = 9, .epoch = 1}); }}};
  for (const auto& [name, end] : ends) {
    std::filesystem::remove(path_);
    auto logger = this->logger();
    write_steps(*logger, 1, 9);
    EXPECT_EQ(steps_in_file(), "1 ") << name;
    end(logger);
    EXPECT_TRUE(steps_in_file().starts_with("1 2 3 4 5 6 7 8 9 ")) << name << ": " << steps_in_file();
  }
}

TEST_F(BufferedSteps, AppearOnceAfterAKillAndAResume) {
  EXPECT_EQ(exit_code_of([&] {
              const auto logger = this->logger();
              write_steps(*logger, 1, 4);
              logger->sync();  // before a checkpoint
              write_steps(*logger, 5, 8);
              return ::raise(SIGKILL);
            }),
            -1);
  EXPECT_EQ(steps_in_file(), "1 2 3 4 ");
  const auto resumed = logger();
  resumed->resume_at({.epoch = 0, .batch = 4, .global_step = 4});
  write_steps(*resumed, 5, 9);
  resumed->finish();
  EXPECT_EQ(steps_in_file(), "1 2 3 4 5 6 7 8 9 ");
}

TEST_F(BufferedSteps, AreWrittenLaterAfterAFullDisk) {
  auto logger = this->logger();
  write_steps(*logger, 1, 3);
  {
    FailAtCall full(0, ENOSPC, /*for_good=*/true);
    const ScopedFileOperations in_force(full);
    EXPECT_THROW(logger->finish(), Error);
    EXPECT_EQ(full.failed, "write");
  }
  logger->write(step(4));
  logger.reset();
  EXPECT_EQ(steps_in_file(), "1 2 3 4 ");
}

TEST_F(BufferedSteps, AreReportedIfTheDestructorCannotWriteThem) {
  std::string log;
  set_log_observer([&](LogLevel, const std::string& text) { log += text; });
  auto logger = this->logger();
  write_steps(*logger, 1, 3);
  FailAtCall full(0, ENOSPC, /*for_good=*/true);
  {
    const ScopedFileOperations in_force(full);
    logger.reset();
  }
  set_log_observer({});
  EXPECT_NE(log.find(path_.string()), std::string::npos) << log;
  EXPECT_NE(log.find("No space left"), std::string::npos) << log;
}

}  // namespace
}  // namespace kindling
