#include "fake_collectives.h"

#include <ATen/Functions.h>

#include <atomic>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "distributed/device_backends.h"
#include "fake_accelerator_parts.h"

namespace kindling::fake {
namespace {

using StorePointer = c10::intrusive_ptr<c10d::Store>;

std::atomic<std::int64_t> num_all_reduces{0}, num_broadcasts{0};

const char* const kAborted = "aborted";

std::string key_of(std::int64_t number, int rank) {
  return std::to_string(number) + "/" + std::to_string(rank);
}

// As the current stream of its device sees it.
std::vector<std::uint8_t> bytes_of_tensor(const at::Tensor& tensor) {
  finish_copies_of(tensor.storage());
  const MemoryAccess access;
  const at::Tensor twin = at::Tensor(cpu_twin(tensor)).contiguous();
  const auto* const first = static_cast<const std::uint8_t*>(twin.const_data_ptr());
  return {first, first + twin.nbytes()};
}

void write(const at::Tensor& tensor, const at::Tensor& numbers) {
  finish_copies_of(tensor.storage());
  const MemoryAccess access;
  at::Tensor(cpu_twin(tensor)).copy_(numbers);
}

// The sum of what some processes have given, in the order of their ranks.
class StoreWork : public c10d::Work {
 public:
  StoreWork(BackendPlace place, std::int64_t number, std::vector<int> from, at::Tensor to)
      : place_(std::move(place)), number_(number), from_(std::move(from)), to_(std::move(to)) {}

  bool wait(std::chrono::milliseconds) override {
    if (!to_.defined()) return true;
    at::Tensor sum;
    for (const int rank : from_) {
      const at::Tensor given = given_by(rank);
      sum = sum.defined() ? sum + given : given;
    }
    write(std::exchange(to_, at::Tensor()), sum);
    return true;
  }

 private:
  at::Tensor given_by(int rank) const {
    const std::string key = key_of(number_, rank);
    while (!place_.store->check({key})) {
      if (place_.store->check({kAborted})) throw std::runtime_error("another one has gone");
      std::this_thread::yield();
    }
    const auto bytes = place_.store->get(key);
    const at::Tensor numbers = at::empty(to_.sizes(), to_.options().device(at::kCPU));
    std::memcpy(numbers.mutable_data_ptr(), bytes.data(), bytes.size());
    return numbers;
  }

  BackendPlace place_;
  std::int64_t number_;
  std::vector<int> from_;
  at::Tensor to_;  // none: it has been done
};

class StoreBackend : public c10d::Backend {
 public:
  explicit StoreBackend(BackendPlace place) : Backend(place.rank, place.size), place_(std::move(place)) {}

  const std::string getBackendName() const override { return "fake"; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions&) override {
    ++num_all_reduces;
    std::vector<int> all(static_cast<std::size_t>(size_));
    for (int rank = 0; rank < size_; ++rank) all[static_cast<std::size_t>(rank)] = rank;
    return start(tensors.at(0), all);
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    ++num_broadcasts;
    return start(tensors.at(0), {static_cast<int>(options.rootRank)});
  }
  void abort() override { place_.store->set(kAborted, std::vector<std::uint8_t>{1}); }

 private:
  c10::intrusive_ptr<c10d::Work> start(const at::Tensor& tensor, const std::vector<int>& from) {
    const std::int64_t number = num_started_++;
    for (const int rank : from)
      if (rank == rank_) place_.store->set(key_of(number, rank), bytes_of_tensor(tensor));
    return c10::make_intrusive<StoreWork>(place_, number, from, tensor);
  }

  BackendPlace place_;
  std::int64_t num_started_ = 0;
};

}  // namespace

CollectiveCounts collective_counts() { return {num_all_reduces, num_broadcasts}; }

void install_collectives() {
  register_device_backend(at::kPrivateUse1,
                          [](const BackendPlace& place) { return c10::make_intrusive<StoreBackend>(place); });
}

}  // namespace kindling::fake
