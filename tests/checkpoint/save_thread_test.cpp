#include "checkpoint/save_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <vector>

#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "support/scratch.h"

namespace kindling {
namespace {

std::function<void()> failing_job(const std::string& text) {
  return [text] { throw CheckpointError({.found = text}); };
}

std::string error_of_finish(SaveThread& saves) {
  return error_text<CheckpointError>([&] { saves.finish(); });
}

TEST(SaveThread, RunsOneJobAfterTheOtherOnAnotherThread) {
  std::vector<int> order;  // no lock: start and finish order all accesses
  std::thread::id where;
  SaveThread saves;
  for (int i = 0; i < 100; ++i)
    saves.start([&, i] {
      order.push_back(i);
      where = std::this_thread::get_id();
    });
  saves.finish();
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
  EXPECT_NE(where, std::this_thread::get_id());
}

TEST(SaveThread, WaitsForThePreviousJobBeforeANewOne) {
  std::promise<void> gate;
  std::atomic<bool> is_done = false;
  SaveThread saves;
  saves.start([&] {
    gate.get_future().wait();
    is_done = true;
  });
  saves.check();  // does not wait: the gate is closed
  EXPECT_FALSE(is_done);
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    gate.set_value();
  });
  saves.start([&] { EXPECT_TRUE(is_done); });
  EXPECT_TRUE(is_done);
  saves.finish();
  opener.join();
}

TEST(SaveThread, ThrowsAnErrorOnce) {
  SaveThread saves;
  saves.start(failing_job("disk full"));
  EXPECT_EQ(error_of_finish(saves), "disk full");
  EXPECT_EQ(error_of_finish(saves), "(no error)");
  EXPECT_NO_THROW(saves.check());
}

TEST(SaveThread, ThrowsAnErrorAtTheNextCheckOrStart) {
  SaveThread saves;
  saves.start(failing_job("first"));
  std::string text = "(no error)";
  while (text == "(no error)") text = error_text<CheckpointError>([&] { saves.check(); });
  EXPECT_EQ(text, "first");
  saves.start(failing_job("second"));
  bool has_run = false;
  EXPECT_EQ(error_text<CheckpointError>([&] { saves.start([&] { has_run = true; }); }), "second");
  saves.finish();
  EXPECT_FALSE(has_run);  // the receiver of the error decides whether to save again
  saves.start([&] { has_run = true; });
  saves.finish();
  EXPECT_TRUE(has_run);
}

TEST(SaveThread, FinishesItsJobBeforeDestruction) {
  std::atomic<bool> is_done = false;
  {
    SaveThread saves;
    saves.start([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      is_done = true;
    });
  }
  EXPECT_TRUE(is_done);
}

TEST(SaveThread, LogsAnErrorThatWasNotRetrieved) {
  std::vector<std::string> told;
  configure_log({.level = LogLevel::warning});
  set_log_observer([&](LogLevel, const std::string& text) { told.push_back(text); });
  {
    SaveThread saves;
    saves.start(failing_job("disk full"));
  }
  {
    SaveThread saves;
    saves.start([] { throw 7; });
  }
  set_log_observer([](LogLevel, const std::string&) { throw std::runtime_error("observer"); });
  {
    SaveThread saves;
    saves.start(failing_job("an observer that throws harms nobody"));
  }
  set_log_observer({});
  configure_log({.level = LogLevel::off});
  EXPECT_EQ(told, (std::vector<std::string>{"saving failed: disk full",
                                            "saving failed: an exception not derived from std::exception"}));
}

TEST(SaveThread, ReleasesAJobsDataBeforeTheNextOneStarts) {
  SaveThread saves;
  auto snapshot = std::make_shared<int>(7);
  const std::weak_ptr<int> watched = snapshot;
  saves.start([snapshot = std::move(snapshot)] { EXPECT_EQ(*snapshot, 7); });
  saves.finish();
  EXPECT_TRUE(watched.expired());
}

}  // namespace
}  // namespace kindling
