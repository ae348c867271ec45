#include "kindling/distributed/process_group.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <barrier>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>

#include "distributed/device_backends.h"
#include "kindling/base/error.h"
#include "support/rank_threads.h"
#include "support/scratch.h"

namespace kindling {
namespace {

// Small and large tensors use different algorithms, and so do numbers of ranks that are not a power of two.
TEST(ProcessGroup, SumsBitIdenticallyOnAllRanks) {
  for (const std::int64_t size : {2, 3, 4, 5, 7})
    for (const std::int64_t count : {1, 1000, 150'000})
      for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kLong}) {
        SCOPED_TRACE(std::to_string(size) + " processes, " + std::to_string(count) + " of " +
                     c10::toString(type));
        std::vector<at::Tensor> sums(static_cast<std::size_t>(size));
        at::Tensor expected = at::zeros({count}, at::kDouble);
        const auto of_rank = [&](std::int64_t rank) {
          return at::arange(count, at::kDouble).remainder(500).div(type == at::kLong ? 1 : 3 + rank).to(type);
        };
        for (std::int64_t rank = 0; rank < size; ++rank) expected += of_rank(rank).to(at::kDouble);
        on_ranks(size, [&](ProcessGroup& group) {
          at::Tensor mine = of_rank(group.rank());
          group.all_reduce(mine);
          sums[static_cast<std::size_t>(group.rank())] = mine;
        });
        for (const at::Tensor& sum : sums) EXPECT_TRUE(sum.equal(sums[0]));
        // A rounding for each number that is added, of 8 bits, 24 or more.
        const double precision = type == at::kBFloat16 ? 1. / 128 : type == at::kFloat ? 1e-6 : 1e-14;
        EXPECT_TRUE(sums[0].to(at::kDouble).allclose(expected, precision * static_cast<double>(size), 1e-9));
      }
}

// Gloo knows no complex numbers.
TEST(ProcessGroup, SendsComplexNumbersAsPairs) {
  for (const std::int64_t count : {3, 150'000})
    on_ranks(2, [&](ProcessGroup& group) {
      const double mine = group.rank() == 0 ? 1 : 4;
      const auto filled = [&](double real, double imaginary) {
        return at::full({count}, c10::complex<double>(real, imaginary), at::kComplexFloat);
      };
      const at::Tensor sum = filled(mine, 2 * mine), sent = filled(mine, -mine), received = filled(0, 0);
      group.all_reduce(sum);
      EXPECT_TRUE(sum.equal(filled(5, 10)));
      group.exchange(sent, received, 1 - group.rank());
      EXPECT_TRUE(received.equal(filled(5 - mine, mine - 5)));
      group.broadcast(std::array{sent}, /*root=*/1);
      EXPECT_TRUE(sent.equal(filled(4, -4)));
    });
}

TEST(ProcessGroup, RunsSeveralSumsAtOnce) {
  for (const std::int64_t size : {2, 3, 4})
    on_ranks(size, [&](ProcessGroup& group) {
      std::vector<at::Tensor> tensors;
      std::vector<std::unique_ptr<ProcessGroup::Work>> works;
      for (const std::int64_t count : {5, 150'000, 5, 7})
        tensors.push_back(at::full({count}, static_cast<double>((group.rank() + 1) << (4 * tensors.size()))));
      for (const at::Tensor& tensor : tensors) works.push_back(group.start_all_reduce(tensor));
      // Others may be at the next things while one still waits for the first.
      if (group.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      for (const auto& work : works) work->wait();
      for (std::size_t i = 0; i < tensors.size(); ++i)
        EXPECT_TRUE(
            tensors[i].eq(static_cast<double>((size * (size + 1) / 2) << (4 * i))).all().item<bool>());
    });
}

// Each group's first operation adds it to a table of LibTorch's, which 2.11 does not protect: there, seven of
// eight runs of this test without the lock ended in a crash.
TEST(ProcessGroup, GroupsInThreadsStartAtTheSameTime) {
  constexpr int kRounds = 100, kGroups = 6;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::shared_ptr<ProcessGroup>> groups;
    for (int i = 0; i < kGroups; ++i)
      groups.push_back(ProcessGroup::from_threads(1, {.timeout_s = 60}).front());
    std::vector<at::Tensor> results(kGroups);
    std::barrier ready(kGroups);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kGroups; ++i)
      threads.emplace_back([&, i] {
        at::Tensor& result = results[i] = at::full({i % 3 == 0 ? 200'000 : 2}, static_cast<double>(i));
        ready.arrive_and_wait();
        if (i % 3 == 0) {
          groups[i]->all_reduce(result);
        } else if (i % 3 == 1) {
          groups[i]->start_broadcast(result, 0)->wait();
        } else {
          EXPECT_EQ(groups[i]->all_gather("of one"), std::vector<std::string>{"of one"});
        }
      });
    for (std::thread& thread : threads) thread.join();
    for (std::size_t i = 0; i < kGroups; ++i)
      EXPECT_TRUE(results[i].eq(static_cast<double>(i)).all().item<bool>());
  }
}

// x86 gives one of two NaNs by their places.
TEST(ProcessGroup, SumsNaNsBitIdentically) {
  for (const std::int64_t size : {2, 3, 4}) {
    std::vector<at::Tensor> sums(static_cast<std::size_t>(size));
    on_ranks(size, [&](ProcessGroup& group) {
      const at::Tensor bits = at::full({40}, 0x7fc00000 + group.rank(), at::kInt);
      const at::Tensor mine = bits.view(at::kFloat).clone();
      group.all_reduce(mine);
      sums[static_cast<std::size_t>(group.rank())] = mine.view(at::kInt);
    });
    for (const at::Tensor& sum : sums) EXPECT_TRUE(sum.equal(sums[0])) << size;
  }
}

TEST(ProcessGroup, SumsParametersInPlace) {
  on_ranks(3, [](ProcessGroup& group) {
    const at::Tensor parameter = at::ones({4}).requires_grad_();
    group.all_reduce(parameter);
    EXPECT_TRUE(parameter.eq(3).all().item<bool>());
  });
}

TEST(ProcessGroup, RunningSumsEndWithTheGroup) {
  on_ranks(4, [](ProcessGroup& group) {
    const auto first = group.start_all_reduce(at::ones({5})), second = group.start_all_reduce(at::ones({7}));
    try {
      if (group.rank() != 2) first->wait();  // of some, by what process 2 has given before it left
    } catch (const DistributedError&) {
    }
    group.leave("no more");
    EXPECT_THROW(second->wait(), DistributedError);
  });
}

// The numbers of this process's threads, and whether each blocks SIGPIPE.
std::map<std::string, bool> threads_and_blocks() {
  std::map<std::string, bool> threads;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(entry.path() / "status");
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("SigBlk:"))
        threads[entry.path().filename()] = std::stoull(line.substr(7), nullptr, 16) >> (SIGPIPE - 1) & 1;
  }
  return threads;
}

TEST(ProcessGroup, ItsThreadsGetNoSigpipe) {
  const auto before = threads_and_blocks();
  const auto groups = ProcessGroup::from_threads(2);
  int added = 0;
  for (const auto& [thread, blocks] : threads_and_blocks()) {
    if (before.contains(thread)) continue;
    EXPECT_TRUE(blocks) << thread;
    ++added;
  }
  EXPECT_GT(added, 0);
}

TEST(ProcessGroup, SendsFromOneToAnother) {
  on_ranks(3, [](ProcessGroup& group) {
    const at::Tensor tensor = at::full({2, 3}, static_cast<double>(group.rank()), at::kDouble);
    if (group.rank() == 2) group.send(tensor, 0);
    if (group.rank() == 0) group.receive(tensor, 2);
    EXPECT_TRUE(tensor.eq(group.rank() == 1 ? 1 : 2).all().item<bool>());
  });
}

TEST(ProcessGroup, BroadcastsTensorsOfAllTypesInPlace) {
  on_ranks(3, [&](ProcessGroup& group) {
    const auto of = static_cast<double>(group.rank());
    std::vector<at::Tensor> tensors{at::full({2, 3}, of),
                                    at::full({}, group.rank(), at::kLong),
                                    at::full({4, 5}, of, at::kDouble).t(),
                                    at::zeros({0}),
                                    at::Tensor(),
                                    at::full({7}, of)};
    group.broadcast(tensors, /*root=*/2);
    for (const at::Tensor& tensor : tensors)
      EXPECT_TRUE(!tensor.defined() || tensor.eq(2).all().item<bool>()) << tensor;
  });
}

TEST(ProcessGroup, GathersTextsOfDifferentLengths) {
  on_ranks(3, [&](ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    EXPECT_EQ(group.all_gather(std::string(rank * 2, 'x')), (std::vector<std::string>{"", "xx", "xxxx"}));
    EXPECT_EQ(group.all_gather(""), (std::vector<std::string>{"", "", ""}));
  });
}

TEST(ProcessGroup, ExchangesInPairs) {
  on_ranks(4, [&](ProcessGroup& group) {
    const at::Tensor mine = at::full({5}, static_cast<double>(group.rank())), theirs = at::zeros({5});
    group.exchange(mine, theirs, group.rank() ^ 1);
    EXPECT_TRUE(theirs.eq(static_cast<double>(group.rank() ^ 1)).all().item<bool>());
  });
}

TEST(ProcessGroup, NamesTheFirstDifferenceOnAllRanks) {
  on_ranks(2, [&](ProcessGroup& group) {
    EXPECT_NO_THROW(group.require_same("here", {{"a", "1"}, {"b", "2"}}));
    try {
      group.require_same("the start", {{"a", "1"}, {"b", group.rank() == 0 ? "2" : "3"}});
      ADD_FAILURE() << "no error in process " << group.rank();
    } catch (const DistributedError& error) {
      EXPECT_STREQ(error.what(),
                   "the start: b is '3' on rank 1 and '2' on rank 0; expected: the same on all ranks");
    }
    const ProcessGroup::NamedTexts more =
        group.rank() == 0 ? ProcessGroup::NamedTexts{} : ProcessGroup::NamedTexts{{"c", "5"}};
    EXPECT_THROW(group.require_same("the start", more), DistributedError);
  });
}

// torchrun's agent keeps its store, in which a restarted group finds the entries of the previous one.
TEST(ProcessGroup, ThatIsRestartedUsesTheSameStore) {
  const Scratch scratch;
  const auto join = [&](std::int64_t restart_count) {
    std::vector<std::shared_ptr<ProcessGroup>> groups(2);
    std::vector<std::thread> threads;
    for (std::int64_t rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, rank] {
        try {
          groups[static_cast<std::size_t>(rank)] = ProcessGroup::join({.rank = rank,
                                                                       .size = 2,
                                                                       .local_rank = rank,
                                                                       .local_size = 2,
                                                                       .restart_count = restart_count,
                                                                       .store_file = scratch / "store"},
                                                                      {.timeout_s = 5});
        } catch (const Error& error) {
          ADD_FAILURE() << "start " << restart_count << ": " << error.what();
        }
      });
    for (std::thread& thread : threads) thread.join();
    return groups;
  };
  const auto first = join(0);
  first[0]->leave("it was killed");
  auto second = join(1);
  ASSERT_TRUE(second[0] && second[1]);
  on_ranks(second, [](ProcessGroup& group) {
    const at::Tensor sum = at::full({1}, 1 + group.rank());
    group.all_reduce(sum);
    EXPECT_EQ(sum.item<std::int64_t>(), 3);
  });
  second[0].reset();  // without a word: that of the former group is not its
  try {
    second[1]->barrier();
    ADD_FAILURE() << "nobody was missed";
  } catch (const DistributedError& error) {
    EXPECT_EQ(std::string(error.what()).find("it was killed"), std::string::npos) << error.what();
  }
}

TEST(ProcessGroup, ReportsWhyAnotherRankHasLeft) {
  on_ranks(3, [&](ProcessGroup& group) {
    if (group.rank() == 1) return group.leave("no data");
    try {
      for (int i = 0; i < 3; ++i) group.barrier();
      ADD_FAILURE();
    } catch (const DistributedError& error) {
      EXPECT_NE(std::string(error.what()).find("rank 1: no data"), std::string::npos) << error.what();
    }
    group.leave("");
  });
}

TEST(ProcessGroup, TreatsASilentRankAsLostAfterTheTimeout) {
  const auto start = std::chrono::steady_clock::now();
  auto groups = ProcessGroup::from_threads(2, {.timeout_s = 0.5});
  try {
    groups[0]->barrier();
    ADD_FAILURE();
  } catch (const DistributedError& error) {
    EXPECT_NE(std::string(error.what()).find("did not answer for 0.5 s"), std::string::npos) << error.what();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  groups[0]->leave("");
  EXPECT_THROW(groups[0]->barrier(), DistributedError);
}

// --- Limits of waits ---

// The message of rank 1, just before the limit, makes Gloo wait for the next one up to a limit of its own.
TEST(ProcessGroup, LimitsALargeSumAsAWhole) {
  constexpr double kLimit = 2;
  auto groups = ProcessGroup::from_threads(4, {.timeout_s = kLimit});
  std::thread late([group = groups[1]] {
    std::this_thread::sleep_for(std::chrono::duration<double>(0.9 * kLimit));
    EXPECT_THROW(group->start_all_reduce(at::ones({1 << 18}))->wait(), DistributedError);
  });
  const auto start = std::chrono::steady_clock::now();
  const auto sum = groups[0]->start_all_reduce(at::ones({1 << 18}));
  try {
    sum->wait();
    ADD_FAILURE() << "nobody was missed";
  } catch (const DistributedError& error) {
    EXPECT_NE(std::string(error.what()).find("did not answer for 2 s"), std::string::npos) << error.what();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::duration<double>(1.65 * kLimit));
  groups[0]->leave("");
  late.join();
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

LaunchEnvironment place_in(const std::filesystem::path& store, std::int64_t rank, std::int64_t size) {
  return {.rank = rank, .size = size, .local_rank = rank, .local_size = size, .store_file = store};
}

std::string error_of_join(const LaunchEnvironment& place, double timeout_s) {
  try {
    ProcessGroup::join(place, {.timeout_s = timeout_s});
  } catch (const DistributedError& error) {
    return error.what();
  }
  return "none";
}

TEST(ProcessGroup, RefusesASecondProcessWithTheSameRankAtOnce) {
  const Scratch scratch;
  std::vector<std::shared_ptr<ProcessGroup>> groups(2);
  std::thread second([&] { groups[1] = ProcessGroup::join(place_in(scratch / "store", 1, 2)); });
  groups[0] = ProcessGroup::join(place_in(scratch / "store", 0, 2));
  second.join();
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(error_of_join(place_in(scratch / "store", 1, 2), 10),
            "rank 1 of 2: another process has already joined as rank 1; expected: one process for each rank, "
            "and a store that no other run uses; give each process a distinct rank; restart all ranks if one "
            "was restarted alone; wait for the end of an earlier run, or set another MASTER_PORT");
  EXPECT_LT(seconds_since(start), 5);
  on_ranks(groups, [](ProcessGroup& group) { EXPECT_NO_THROW(group.barrier()); });
}

TEST(ProcessGroup, NamesARankThatDoesNotJoin) {
  const Scratch scratch;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(
      error_of_join(place_in(scratch / "store", 1, 3), 0.2),
      "rank 1 of 3: rank 0 has not joined within 0.2 s; expected: all 3 ranks; see the log of that rank");
  EXPECT_LT(seconds_since(start), 5.2);
}

// Like the store of a rank 0 that is stopped: the system accepts connections for it.
TEST(ProcessGroup, DoesNotWaitForASilentStoreWhenItJoins) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  ASSERT_TRUE(::bind(listener, any, size) == 0 && ::listen(listener, 4) == 0 &&
              ::getsockname(listener, any, &size) == 0);
  const LaunchEnvironment place{
      .rank = 1, .size = 2, .master_address = "127.0.0.1", .master_port = ntohs(address.sin_port)};
  const auto start = std::chrono::steady_clock::now();
  const std::string error = error_of_join(place, 0.2);
  EXPECT_LT(seconds_since(start), 5.2);
  EXPECT_NE(error.find("does not answer"), std::string::npos) << error;
  EXPECT_NE(error.find("but a process listens on this port, which may be another program"), std::string::npos)
      << error;
  EXPECT_NE(error.find("set another MASTER_PORT"), std::string::npos) << error;
  LaunchEnvironment server = place;
  server.rank = 0;
  const std::string in_use = error_of_join(server, 0.2);
  EXPECT_NE(in_use.find("is in use"), std::string::npos) << in_use;
  ::close(listener);
}

// Connections have a fifth of the timeout, and at least a second, which is the time in question here.
TEST(ProcessGroup, MayWaitLongerThanForAConnection) {
  auto groups = ProcessGroup::from_threads(2, {.timeout_s = 5});
  on_ranks(groups, [](ProcessGroup& group) {
    if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1100));
    const at::Tensor small = at::ones({5}), large = at::ones({150'000}), text = at::ones({5});
    const auto sum = group.start_all_reduce(small), large_sum = group.start_all_reduce(large);
    group.rank() == 0 ? group.receive(text, 1) : group.send(text, 0);
    sum->wait();
    large_sum->wait();
  });
}

// --- The end of groups and works ---

TEST(ProcessGroup, OfOneRankMakesAllCollectives) {
  on_ranks(1, [](ProcessGroup& group) {
    for (const std::int64_t count : {1, 1000, 150'000}) {
      const at::Tensor tensor = at::full({count}, 3.);
      group.all_reduce(tensor);
      group.start_broadcast(tensor, 0)->wait();
      EXPECT_TRUE(tensor.eq(3).all().item<bool>()) << count;
    }
    group.barrier();
    EXPECT_EQ(group.all_gather("alone"), std::vector<std::string>{"alone"});
  });
}

TEST(ProcessGroup, WorksMayOutliveIt) {
  for (const std::int64_t size : {1, 2}) {
    auto groups = ProcessGroup::from_threads(size, {.timeout_s = 60});
    std::vector<std::unique_ptr<ProcessGroup::Work>> works;
    works.push_back(groups[0]->start_all_reduce(at::ones({5})));
    works.push_back(groups[0]->start_all_reduce(at::ones({7})));
    if (size == 1) works.push_back(groups[0]->start_all_reduce(at::ones({150'000})));
    if (size == 1) works.push_back(groups[0]->start_broadcast(at::ones({5}), 0));
    works.erase(works.begin());  // one is given up before
    groups.clear();
    for (const auto& work : works) EXPECT_THROW(work->wait(), DistributedError) << size;
  }
}

TEST(ProcessGroup, OfThreadsRethrowsTheirErrors) {
  ::setenv("GLOO_SOCKET_IFNAME", "nonexistent0", 1);
  try {
    ProcessGroup::from_threads(3, {.timeout_s = 60});
    ADD_FAILURE() << "no error";
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("environment variable GLOO_SOCKET_IFNAME: it is \"nonexistent0\""), std::string::npos)
        << text;
  }
  ::unsetenv("GLOO_SOCKET_IFNAME");
  EXPECT_THROW(ProcessGroup::from_threads(2, {.timeout_s = -1}), ConfigError);
  EXPECT_THROW(ProcessGroup::from_threads(0), ConfigError);
}

// For tensors without memory.
struct FakeBackend : c10d::Backend {
  FakeBackend(int& num_aborted, bool can_abort)
      : Backend(0, 1), num_aborted(num_aborted), can_abort(can_abort) {}
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>&, const c10d::BroadcastOptions&) override {
    return c10::make_intrusive<c10d::Work>();
  }
  void abort() override {
    ++num_aborted;
    if (!can_abort) throw std::runtime_error("no");
  }
  int& num_aborted;
  bool can_abort;
};

at::Tensor tensor_on(c10::DeviceType type, c10::DispatchKey key) {
  return at::Tensor(c10::make_intrusive<c10::TensorImpl>(
      c10::DispatchKeySet(key), caffe2::TypeMeta::Make<float>(), c10::Device(type, 0)));
}

// Otherwise a GPU would wait forever for ranks that have ended.
TEST(ProcessGroup, AbortsAllDevicesWhenItIsLeftEvenWithoutItsStore) {
  const Scratch scratch;
  static int num_aborted = 0;  // the backends stay registered
  const auto backend = [&](bool can_abort) {
    return
        [can_abort](const BackendPlace&) { return c10::make_intrusive<FakeBackend>(num_aborted, can_abort); };
  };
  register_device_backend(at::kXLA, backend(false));  // before the next one in the order of devices
  register_device_backend(at::kHPU, backend(true));
  const auto group = ProcessGroup::join(place_in(scratch / "store", 0, 1), {.timeout_s = 5});
  group->start_broadcast(tensor_on(at::kXLA, c10::DispatchKey::XLA), 0);
  group->start_broadcast(tensor_on(at::kHPU, c10::DispatchKey::HPU), 0);
  std::filesystem::remove(scratch / "store");
  std::filesystem::create_directory(scratch / "store");  // cannot be opened as a file
  group->leave("the end");
  EXPECT_EQ(num_aborted, 2);
  EXPECT_THROW(group->barrier(), DistributedError);
  std::filesystem::remove(scratch / "store");
}

TEST(ProcessGroup, EndsAfterADeviceWithoutABackend) {
  const auto group = ProcessGroup::from_threads(1).front();
  EXPECT_THROW(group->start_broadcast(tensor_on(at::kIPU, c10::DispatchKey::IPU), 0), DistributedError);
  group->leave("no backend");
}

}  // namespace
}  // namespace kindling
