#include "base/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

namespace kindling {
namespace {

using namespace std::chrono_literals;

TEST(WorkerPool, RunsEveryTaskOnce) {
  for (const int num_threads : {1, 2, 4}) {
    WorkerPool pool(num_threads);
    std::vector<int> runs(2000);
    std::vector<std::shared_ptr<WorkerPool::Task>> tasks;
    for (int& count : runs) tasks.push_back(pool.submit([&count] { ++count; }));
    for (const auto& task : tasks) task->wait();
    EXPECT_EQ(runs, std::vector<int>(2000, 1)) << num_threads;
  }
}

TEST(WorkerPool, OneThreadRunsTasksInOrder) {
  WorkerPool pool(1);
  std::vector<int> order;
  std::vector<std::shared_ptr<WorkerPool::Task>> tasks;
  for (int i = 0; i < 100; ++i) tasks.push_back(pool.submit([&order, i] { order.push_back(i); }));
  tasks.back()->wait();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(WorkerPool, WaitThrowsWhatTheTaskHasThrown) {
  WorkerPool pool(2);
  const auto bad = pool.submit([] { throw std::out_of_range("sample 7"); });
  const auto good = pool.submit([] {});
  try {
    bad->wait();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::out_of_range& error) {
    EXPECT_STREQ(error.what(), "sample 7");
  }
  good->wait();
}

TEST(WorkerPool, CancelDropsATaskThatHasNotBegun) {
  WorkerPool pool(1);
  std::atomic<bool> may_end = false;
  bool has_run = false;
  const auto first = pool.submit([&] {
    while (!may_end) std::this_thread::sleep_for(1ms);
  });
  const auto second = pool.submit([&] { has_run = true; });
  second->cancel();
  may_end = true;
  first->wait();
  EXPECT_FALSE(has_run);
}

TEST(WorkerPool, CancelWaitsForATaskThatRuns) {
  WorkerPool pool(1);
  std::atomic<bool> has_begun = false;
  bool has_ended = false;
  const auto task = pool.submit([&] {
    has_begun = true;
    std::this_thread::sleep_for(20ms);
    has_ended = true;
  });
  while (!has_begun) std::this_thread::sleep_for(1ms);
  task->cancel();
  EXPECT_TRUE(has_ended);
}

TEST(WorkerPool, DestructorEndsThreadsAndDropsTasks) {
  const auto token = std::make_shared<int>(0);
  {
    WorkerPool pool(3);
    for (int i = 0; i < 100; ++i) pool.submit([token] { std::this_thread::sleep_for(1ms); });
  }
  EXPECT_EQ(token.use_count(), 1);
}

TEST(WorkerPool, RunsAFunctionAtTheStartOfEachThread) {
  std::atomic<int> num_starts = 0;
  {
    WorkerPool pool(3, [&] { ++num_starts; });
    pool.submit([] {})->wait();
  }
  EXPECT_EQ(num_starts, 3);
}

TEST(WorkerPool, FreesWhatATaskHasCapturedWhenItEnds) {
  WorkerPool pool(1);
  const auto token = std::make_shared<int>(0);
  const auto task = pool.submit([token] {});
  task->wait();
  EXPECT_EQ(token.use_count(), 1);
}

}  // namespace
}  // namespace kindling
