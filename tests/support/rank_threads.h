#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "kindling/distributed/process_group.h"

namespace kindling {

// Runs the same function on each thread of a group. An exception fails the test and ends the others.
inline void on_ranks(const std::vector<std::shared_ptr<ProcessGroup>>& groups,
                     const std::function<void(ProcessGroup&)>& run) {
  std::vector<std::thread> threads;
  for (const auto& group : groups)
    threads.emplace_back([&run, &group] {
      try {
        run(*group);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << group->rank() << ": " << error.what();
        group->leave(error.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
}

inline void on_ranks(std::int64_t size, const std::function<void(ProcessGroup&)>& run) {
  on_ranks(ProcessGroup::from_threads(size, {.timeout_s = 60}), run);
}

}  // namespace kindling
