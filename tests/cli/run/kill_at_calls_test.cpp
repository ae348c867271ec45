// kill -9 after each system call on the files of a run, from its last step to its exit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <set>

#include "cli/commands/process.h"
#include "cli/run/same_run.h"
#include "loggers/event_file.h"
#include "support/recorded_call.h"
#include "support/scratch.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kCallsBeforeTheEnd = 8;  // the records of the last step, before its checkpoint

// The number of calls, and the first one that names a file.
struct CountedCalls {
  std::size_t all = 0, first_with_name = 0;

  CountedCalls(const std::string& record, const std::string& name) {
    for (std::size_t at = 0; at < record.size();) {
      RecordedCallHeader header;
      std::memcpy(&header, record.data() + at, sizeof header);
      at += sizeof header;
      ++all;
      const bool has_path = header.kind == 'o' || header.kind == 'r';
      if (has_path && first_with_name == 0 &&
          record.substr(at, header.text_bytes).find(name) != std::string::npos)
        first_with_name = all;
      at += header.text_bytes + header.more_bytes;
    }
  }
};

// The names of all files, without what differs from start to start.
std::set<std::string> names_in(const fs::path& run) {
  std::set<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(run)) {
    const std::string name = entry.path().lexically_relative(run).string();
    names.insert(name.starts_with("events.out.") ? "events.out" : name);
  }
  return names;
}

std::vector<std::pair<std::int64_t, std::vector<std::string>>> points_of(const fs::path& run) {
  std::vector<std::pair<std::int64_t, std::vector<std::string>>> points;
  for (const auto& entry : fs::directory_iterator(run)) {
    if (!entry.path().filename().string().starts_with("events.out.")) continue;
    EventReader reader(entry.path());
    for (EventRecord event; reader.next(event);)
      if (!event.tags.empty()) points.emplace_back(event.step, event.tags);
  }
  std::ranges::sort(points);
  return points;
}

class KilledAtACall : public testing::Test {
 protected:
  void SetUp() override {
    if (std::string_view(KINDLING_RECORD_DISK_CALLS).empty())
      GTEST_SKIP() << "a sanitizer's own library wants to be the first one that is loaded";
    write_text(scratch_ / "small.toml",
               "[model]\nname = \"softmax_regression\"\n[data]\nname = \"digits\"\nbatch_size = 128\n"
               "[trainer]\nmax_epochs = 1\nlog_every_n_steps = 1\n[checkpoint]\nevery_n_steps = 7\n");
  }

  // Returns the exit code. `kill_at`: 0 for never.
  int fit(const std::string& runs, std::size_t kill_at) {
    ::setenv("LD_PRELOAD", KINDLING_RECORD_DISK_CALLS, 1);
    ::setenv("KINDLING_RECORD_ROOT", (scratch_ / runs).c_str(), 1);
    ::setenv("KINDLING_RECORD_TO", (scratch_ / (runs + ".record")).c_str(), 1);
    ::setenv("KINDLING_KILL_AT", std::to_string(kill_at).c_str(), 1);
    const int code = run_process(
        {"fit", "-c", (scratch_ / "small.toml").string(), "--quiet", "run.dir=" + (scratch_ / runs).string()},
        scratch_ / "output.txt");
    for (const char* name : {"LD_PRELOAD", "KINDLING_RECORD_ROOT", "KINDLING_RECORD_TO", "KINDLING_KILL_AT"})
      ::unsetenv(name);
    return code;
  }
  fs::path run(const std::string& runs) const { return scratch_ / runs / "small/0001"; }

  void expect_all_files(const fs::path& found, const fs::path& wanted) {
    expect_same_run(found, wanted);
    EXPECT_EQ(names_in(found), names_in(wanted));
    EXPECT_EQ(points_of(found), points_of(wanted));
    for (const char* file : {"model.csv", "curves.svg"})
      EXPECT_TRUE(text_of(found / file) == text_of(wanted / file)) << file;
    const std::string report = text_of(found / "report.html"), log = text_of(found / "log.txt");
    EXPECT_EQ(report.find("http-equiv=\"refresh\""), std::string::npos);  // it is the final one
    EXPECT_NE(report.find("finished"), std::string::npos);
    EXPECT_NE(log.find("* best"), std::string::npos) << log;
    EXPECT_FALSE(text_of(found / "command.txt").empty());
  }

  const Scratch scratch_{memory_folder()};
};

TEST_F(KilledAtACall, LeavesAllFilesAfterAResume) {
  ASSERT_EQ(fit("alone", 0), 0) << text_of(scratch_ / "output.txt");
  const std::string last = newest_valid_checkpoint(run("alone") / "checkpoints").value().path.filename();
  const CountedCalls calls(text_of(scratch_ / "alone.record"), last);
  ASSERT_GT(calls.first_with_name, kCallsBeforeTheEnd);
  const std::size_t first = calls.first_with_name - kCallsBeforeTheEnd, count = calls.all - first;
  const bool is_soak = std::getenv("KINDLING_SOAK_CALLS") != nullptr;
  const std::size_t num_kills = is_soak ? count : std::min<std::size_t>(20, count);
  std::size_t killed = 0;
  for (std::size_t i = 0; i < num_kills && !HasFailure(); ++i) {
    const std::size_t kill_at = first + i * count / num_kills;
    SCOPED_TRACE("killed at call " + std::to_string(kill_at) + " of " + std::to_string(calls.all));
    const std::string runs = "killed" + std::to_string(i);
    const int code = fit(runs, kill_at);
    EXPECT_TRUE(code == 0 || code == 128 + SIGKILL) << code << text_of(scratch_ / "output.txt");
    killed += code != 0 ? 1 : 0;
    EXPECT_EQ(run_process({"fit", "--resume", run(runs).string(), "--quiet"}, scratch_ / "output.txt"), 0)
        << text_of(scratch_ / "output.txt");
    expect_all_files(run(runs), run("alone"));
    fs::remove_all(scratch_ / runs);
  }
  EXPECT_GE(killed, num_kills - num_kills / 10);  // the number of calls depends on the time, a little
  std::cout << "[          ] " << killed << " kills from call " << first << " to " << calls.all << "\n";
}

}  // namespace
}  // namespace kindling
