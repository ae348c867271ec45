#include "kindling/base/log.h"

#include <gtest/gtest.h>

#include <regex>
#include <thread>
#include <utility>
#include <vector>

#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "support/scratch.h"

namespace kindling {
namespace {

class Log : public testing::Test {
 protected:
  void TearDown() override {
    configure_log({});
    set_log_observer({});
  }
};

TEST_F(Log, IsSilentByDefault) {
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  log_error("nobody asked");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

TEST_F(Log, WritesPlainLinesToStderr) {
  testing::internal::CaptureStderr();
  configure_log({.to_stderr = true});
  log(LogLevel::debug, "too fine");
  log_info("{} is no placeholder");
  log_warning("text");
  log_error("worse");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "info: {} is no placeholder\nwarning: text\nerror: worse\n");
}

TEST_F(Log, ColorsOnlyWhenAsked) {
  testing::internal::CaptureStderr();
  configure_log({.to_stderr = true, .color = true});
  log_warning("text");
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_EQ(line.front(), '\x1b');
  EXPECT_TRUE(line.ends_with(" text\n")) << line;
}

TEST_F(Log, AppendsToTheFileWithTimestamps) {
  const Scratch scratch;
  for (const char* const message : {"first", "second"}) {
    configure_log({.file = scratch / "log.txt"});
    log_warning(message);
  }
  const std::string stamp = R"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} )";
  EXPECT_TRUE(std::regex_match(read_file(scratch / "log.txt", 1000),
                               std::regex(stamp + "warning: first\n" + stamp + "warning: second\n")));
}

TEST_F(Log, KeepsItsConfigurationWhenTheFileCannotBeOpened) {
  const Scratch scratch;
  configure_log({.file = scratch / "log.txt"});
  EXPECT_NE(error_text<Error>([&] { configure_log({.file = scratch.folder()}); }).find("the log file"),
            std::string::npos);
  log_info("still here");
  EXPECT_NE(read_file(scratch / "log.txt", 1000).find("still here"), std::string::npos);
}

TEST_F(Log, WritesThroughALinkOnlyIfAllowed) {
  const Scratch scratch;
  write_file_atomically(scratch / "other.txt", "");
  std::filesystem::create_symlink("other.txt", scratch / "log.txt");
  const std::string text =
      error_text<Error>([&] { configure_log({.file = scratch / "log.txt", .follow_links = false}); });
  EXPECT_EQ(text,
            (scratch / "log.txt").string() +
                ": the log file is a symbolic link; expected: a file, or none; remove the link: what it "
                "leads to would be written");
  log_info("to nobody");
  EXPECT_EQ(read_file(scratch / "other.txt", 100), "");
  configure_log({.file = scratch / "log.txt"});
  log_info("to the other");
  EXPECT_NE(read_file(scratch / "other.txt", 100).find("to the other\n"), std::string::npos);
}

TEST_F(Log, PassesMessagesOfItsLevelToTheObserver) {
  std::vector<std::pair<LogLevel, std::string>> seen;
  set_log_observer([&](LogLevel level, const std::string& text) { seen.emplace_back(level, text); });
  configure_log({.level = LogLevel::warning});
  log_info("dropped");
  log_warning("kept");
  log(LogLevel::off, "no level for a message");
  configure_log({.level = LogLevel::off});
  log_error("dropped");
  using Seen = std::vector<std::pair<LogLevel, std::string>>;
  EXPECT_EQ(seen, (Seen{{LogLevel::warning, "kept"}}));
}

TEST_F(Log, LetsTheObserverLog) {
  int calls = 0;
  set_log_observer([&](LogLevel, const std::string& text) {
    ++calls;
    if (text == "outer") log_info("inner");
  });
  log_info("outer");
  EXPECT_EQ(calls, 2);
}

TEST_F(Log, AcceptsMessagesFromManyThreads) {
  const Scratch scratch;
  configure_log({.file = scratch / "log.txt"});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 50; ++i) log_info("one line");
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string text = read_file(scratch / "log.txt", 1 << 20);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 200);
}

}  // namespace
}  // namespace kindling
