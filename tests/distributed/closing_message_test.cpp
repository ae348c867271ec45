#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "distributed/c10d_store.h"

namespace kindling {
namespace {

// Behaves like a store on a disconnected machine: accepts requests and does not answer.
class SilentStore : public c10d::HashStore {
 public:
  bool check(const std::vector<std::string>& keys) override {
    while (is_silent) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return HashStore::check(keys);
  }
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override {
    ++num_told;
    while (is_silent) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    HashStore::set(key, value);
  }
  std::atomic<bool> is_silent{true};
  std::atomic<int> num_told{0};
};

TEST(ClosingMessage, ListsTheReasonsOfAllOtherRanks) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  ClosingMessage first(store, 0, 3), second(store, 1, 3), third(store, 2, 3);
  EXPECT_EQ(first.of_others(), "");
  first.leave("out of memory");
  third.leave("no more data");
  EXPECT_EQ(first.of_others(), "rank 2: no more data");
  EXPECT_EQ(second.of_others(), "rank 0: out of memory; rank 2: no more data");
}

// That it returns at all is the promise: nobody makes the store answer before.
TEST(ClosingMessage, DoesNotWaitForASilentStore) {
  const auto store = c10::make_intrusive<SilentStore>();
  ClosingMessage words(store, 0, 2, std::chrono::milliseconds(20));
  EXPECT_EQ(words.of_others(), "");
  words.leave("a cable");  // would wait after the request
  EXPECT_EQ(store->num_told, 0);
  store->is_silent = false;
  EXPECT_EQ(words.of_others(), "");
}

TEST(ClosingMessage, IsNotWaitedForEither) {
  const auto store = c10::make_intrusive<SilentStore>();
  ClosingMessage words(store, 0, 2, std::chrono::milliseconds(20));
  words.leave("a cable");
  words.leave("a cable");  // would wait after the first one
  EXPECT_EQ(store->num_told, 1);
  store->is_silent = false;
}

}  // namespace
}  // namespace kindling
