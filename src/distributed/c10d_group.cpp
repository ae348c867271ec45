#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <net/if.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <system_error>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>
#include <vector>

#include "distributed/blocked_pipe_signal.h"
#include "distributed/c10d_doubling_sum.h"
#include "distributed/c10d_store.h"
#include "distributed/device_backends.h"
#include "kindling/base/error.h"
#include "kindling/base/number_text.h"
#include "kindling/distributed/process_group.h"
#include "tensors/real_numbers.h"

namespace kindling {
namespace {

[[noreturn]] void refuse_interface(const std::string& name, const std::string& why) {
  throw ConfigError({.place = "environment variable GLOO_SOCKET_IFNAME",
                     .found = "it is \"" + name + "\" (" + why + ")",
                     .wanted = "a network interface of this machine, as `ip address` lists them",
                     .remedy = "unset it to use the interface of the route to rank 0"});
}

// The environment variable that Gloo reads, set by the network's administrator, takes precedence. Without an
// address, uses the one that the machine's name resolves to. Gloo leaks memory for an interface that does not
// exist.
std::shared_ptr<gloo::transport::Device> network(const std::string& address) {
  if (const char* name = std::getenv("GLOO_SOCKET_IFNAME"); name != nullptr && *name != '\0') {
    if (::if_nametoindex(name) == 0) refuse_interface(name, "there is no such interface");
    try {
      return c10d::ProcessGroupGloo::createDeviceForInterface(name);
    } catch (const std::exception& error) {
      refuse_interface(name, first_sentence(error.what()));
    }
  }
  return address.empty() ? c10d::ProcessGroupGloo::createDefaultDevice()
                         : c10d::ProcessGroupGloo::createDeviceForHostname(address);
}

// LibTorch 2.11 reads and extends its flight recorder's table of groups without a lock (2.13 has one), so
// operations of groups in different threads must not start at the same time.
std::mutex recorder_mutex;

class C10dGroup : public ProcessGroup {
 public:
  // Calls an operation that waits for other ranks; `what` describes it in errors.
  template <class Call>
  auto guarded(const char* what, const Call& call) {
    const BlockedPipeSignal block;
    try {
      return call();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw_error(what, error.what());
    }
  }

  C10dGroup(const LaunchEnvironment& place, StorePointer store, const DistributedOptions& options,
            const Deadline& deadline);
  ~C10dGroup() override;

  std::unique_ptr<Work> start_all_reduce(const at::Tensor& tensor) override;
  std::unique_ptr<Work> start_broadcast(const at::Tensor& tensor, std::int64_t root) override;
  void exchange(const at::Tensor& mine, const at::Tensor& theirs, std::int64_t other) override;
  void send(const at::Tensor& tensor, std::int64_t to) override;
  void receive(const at::Tensor& tensor, std::int64_t from) override;
  std::vector<std::string> all_gather(const std::string& bytes) override;
  void leave(const std::string& reason) noexcept override;

 private:
  c10d::Backend& backend() const;
  c10d::Backend& backend_of(const at::Tensor& tensor);
  template <class Call>
  WorkPointer start_on(const at::Tensor& tensor, const Call& call);
  at::Tensor gather(const at::Tensor& mine, const Deadline& deadline);
  void wait_on_host(c10d::Work& work, const Deadline& deadline);
  void release_backend() noexcept;
  // For concurrent exchanges; that of exchange() is 0.
  int next_tag() { return tag_ = tag_ % 0xffff + 1; }
  [[noreturn]] void throw_error(const char* what, const std::string& error);

  StorePointer store_;
  ClosingMessage closing_message_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> backend_;                           // nullptr: it has been left
  std::map<at::DeviceType, c10::intrusive_ptr<c10d::Backend>> device_backends_;  // made at first use
  class StartedWork;
  class SmallWork;
  class BackendWork;
  std::set<StartedWork*> works_{};
  bool has_unfinished_work_ = false;  // of backend_, past its deadline
  int tag_ = 0;
};

// An operation that may outlive its group, which then ends it.
class C10dGroup::StartedWork : public ProcessGroup::Work {
 public:
  StartedWork(C10dGroup& group, const char* what) : group_(&group), what_(what) { group.works_.insert(this); }
  ~StartedWork() override {
    if (group_ != nullptr) group_->works_.erase(this);
  }
  StartedWork(const StartedWork&) = delete;
  StartedWork& operator=(const StartedWork&) = delete;

  void wait() final {
    if (group_ == nullptr)
      throw DistributedError({.place = "ProcessGroup::Work::wait",
                              .found = "the group of this operation has been destroyed",
                              .wanted = "a group that exists until its operations are done"});
    group_->backend();  // or it has been left
    group_->guarded(what_, [&] { finish(Deadline(group_->options().timeout_s)); });
  }
  // Releases what the operation needs of its group.
  virtual void give_up() noexcept = 0;
  void lose_group() noexcept {
    give_up();
    group_ = nullptr;
  }

 protected:
  virtual void finish(const Deadline& deadline) = 0;
  C10dGroup& group() const { return *group_; }

 private:
  C10dGroup* group_;
  const char* what_;
};

// A running sum keeps the group's connections open and needs its backend: it ends with them.
class C10dGroup::SmallWork final : public StartedWork {
 public:
  SmallWork(C10dGroup& group, const at::Tensor& tensor) : StartedWork(group, "for a sum") {
    sum_.emplace(group.backend(), tensor, group.next_tag());
  }
  void give_up() noexcept override { sum_.reset(); }

 private:
  void finish(const Deadline& deadline) override { sum_->wait(deadline); }

  std::optional<DoublingSum> sum_;
};

// The backend of a device limits the wait itself: with another limit, the host would wait for a GPU.
class C10dGroup::BackendWork final : public StartedWork {
 public:
  BackendWork(C10dGroup& group, const char* what, const at::Tensor& tensor, WorkPointer started)
      : StartedWork(group, what), is_on_host_(tensor.is_cpu()), work_(std::move(started)) {}
  void give_up() noexcept override { work_.reset(); }

 private:
  void finish(const Deadline& deadline) override {
    if (is_on_host_)
      group().wait_on_host(*work_, deadline);
    else
      work_->wait();
  }

  bool is_on_host_;
  WorkPointer work_;
};

// Gloo tries five times to connect, each time for the whole timeout. All ranks have joined by then, so that a
// connection takes a moment. Messages keep the timeout of the connection unless each has its own.
C10dGroup::C10dGroup(const LaunchEnvironment& place, StorePointer store, const DistributedOptions& options,
                     const Deadline& deadline)
    : ProcessGroup(place.rank, place.size, place.local_rank, options),
      store_(std::move(store)),
      closing_message_(store_, place.rank, place.size) {
  constexpr int kNumTries = 5;
  constexpr std::chrono::milliseconds kLeast(1000);
  guarded("to join", [&] {
    meet(*store_, place, deadline);
    auto gloo = c10d::ProcessGroupGloo::Options::create(std::max(deadline.left() / kNumTries, kLeast));
    gloo->devices.push_back(network(address_among(*store_, place)));
    backend_ = c10::make_intrusive<c10d::ProcessGroupGloo>(store_, static_cast<int>(rank()),
                                                           static_cast<int>(size()), std::move(gloo));
    backend().setTimeout(milliseconds(options.timeout_s));
  });
}

c10d::Backend& C10dGroup::backend() const {
  if (backend_) return *backend_;
  throw DistributedError({.place = "rank " + std::to_string(rank()) + " of " + std::to_string(size()),
                          .found = "it has left its group after an error",
                          .remedy = "restart all processes"});
}

C10dGroup::~C10dGroup() {
  for (const auto& [type, of_devices] : device_backends_) try {
      of_devices->shutdown();
    } catch (const std::exception&) {  // there is nothing left to clean up
    }
  for (StartedWork* const work : works_) work->lose_group();
  release_backend();
}

// Gloo limits each message of an operation by itself: a rank that comes late lets the others wait for nearly
// twice the limit. Gloo's own error, after which none of its threads is at work, goes first.
void C10dGroup::wait_on_host(c10d::Work& work, const Deadline& deadline) {
  constexpr std::chrono::milliseconds kForError(500);
  try {
    work.wait(deadline.left() + kForError);
  } catch (const std::exception&) {
    has_unfinished_work_ |= !work.isCompleted();
    throw;
  }
}

// Closes the connections. Gloo waits for its threads: where one is still at work, in a thread of its own.
void C10dGroup::release_backend() noexcept {
  if (has_unfinished_work_) try {
      std::thread([backend = backend_]() mutable { backend.reset(); }).detach();
    } catch (const std::exception&) {  // then this thread waits
    }
  backend_.reset();
}

// All ranks call this for the same tensors, and create a backend together.
c10d::Backend& C10dGroup::backend_of(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return backend();
  backend();  // or it has been left
  const at::DeviceType type = tensor.device().type();
  auto found = device_backends_.find(type);
  if (found == device_backends_.end()) {
    auto store = c10::make_intrusive<c10d::PrefixStore>(c10::DeviceTypeName(type, true), store_);
    auto made = make_device_backend(type, {.store = std::move(store),
                                           .rank = static_cast<int>(rank()),
                                           .size = static_cast<int>(size()),
                                           .timeout = milliseconds(options().timeout_s)});
    found = device_backends_.emplace(type, std::move(made)).first;
  }
  return *found->second;
}

// Starts an operation that LibTorch's flight recorder records. Operations on the CPU start without waiting
// for other ranks. NCCL's may wait and have a recorder of their own, so they start without the lock. Sending
// and receiving are not recorded.
template <class Call>
WorkPointer C10dGroup::start_on(const at::Tensor& tensor, const Call& call) {
  c10d::Backend& backend = backend_of(tensor);
  std::unique_lock lock(recorder_mutex, std::defer_lock);
  if (tensor.is_cpu()) lock.lock();
  return call(backend);
}

void C10dGroup::throw_error(const char* what, const std::string& error) {
  const std::string place = "rank " + std::to_string(rank()) + " of " + std::to_string(size());
  const std::string why = closing_message_.of_others();
  const bool is_late =
      error.find("imed out") != std::string::npos || error.find("imeout") != std::string::npos;
  if (!why.empty())
    throw DistributedError(
        {.place = place, .found = "another rank has ended: " + why, .remedy = "see its log"});
  throw DistributedError(
      {.place = place,
       .found = is_late ? std::string("waiting ") + what + ", another rank did not answer for " +
                              number_text(options().timeout_s) + " s"
                        : std::string("waiting ") + what + ", it lost another rank (" +
                              first_sentence(error) + ")",
       .wanted = "all " + std::to_string(size()) + " ranks",
       .remedy = "see the logs of the other ranks; a run resumes from its last checkpoint"});
}

std::unique_ptr<ProcessGroup::Work> C10dGroup::start_all_reduce(const at::Tensor& tensor) {
  return guarded("for a sum", [&]() -> std::unique_ptr<Work> {
    std::vector<at::Tensor> tensors{numbers_in_memory(tensor)};
    if (tensor.is_cpu() && tensor.numel() > 0 && tensor.nbytes() <= DoublingSum::kLargest_bytes)
      return std::make_unique<SmallWork>(*this, tensors.front());
    return std::make_unique<BackendWork>(*this, "for a sum", tensor, start_on(tensor, [&](c10d::Backend& to) {
      return to.allreduce(tensors);
    }));
  });
}

std::unique_ptr<ProcessGroup::Work> C10dGroup::start_broadcast(const at::Tensor& tensor, std::int64_t root) {
  constexpr const char* kWhat = "for a broadcast";
  return guarded(kWhat, [&]() -> std::unique_ptr<Work> {
    std::vector<at::Tensor> tensors{numbers_in_memory(tensor)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    return std::make_unique<BackendWork>(*this, kWhat, tensor, start_on(tensor, [&](c10d::Backend& to) {
      return to.broadcast(tensors, options);
    }));
  });
}

void C10dGroup::exchange(const at::Tensor& mine, const at::Tensor& theirs, std::int64_t other) {
  guarded("for an exchange", [&] {
    std::vector<at::Tensor> to{numbers_in_memory(mine)}, from{numbers_in_memory(theirs)};
    const Deadline deadline(options().timeout_s);
    const WorkPointer received = backend().recv(from, static_cast<int>(other), 0);
    backend().send(to, static_cast<int>(other), 0)->wait(deadline.left());
    received->wait(deadline.left());
  });
}

void C10dGroup::send(const at::Tensor& tensor, std::int64_t to) {
  guarded("to send", [&] {
    std::vector<at::Tensor> tensors{numbers_in_memory(tensor)};
    backend().send(tensors, static_cast<int>(to), 0)->wait(milliseconds(options().timeout_s));
  });
}

void C10dGroup::receive(const at::Tensor& tensor, std::int64_t from) {
  guarded("to receive", [&] {
    std::vector<at::Tensor> tensors{numbers_in_memory(tensor)};
    backend().recv(tensors, static_cast<int>(from), 0)->wait(milliseconds(options().timeout_s));
  });
}

// [processes, numbers].
at::Tensor C10dGroup::gather(const at::Tensor& mine, const Deadline& deadline) {
  const at::Tensor all = at::empty({size(), mine.numel()}, mine.options());
  std::vector<std::vector<at::Tensor>> outputs{all.unbind()};
  std::vector<at::Tensor> inputs{mine};
  wait_on_host(*start_on(mine, [&](c10d::Backend& to) { return to.allgather(outputs, inputs); }), deadline);
  for (std::int64_t i = 0; i < size(); ++i) all[i].copy_(outputs[0][static_cast<std::size_t>(i)]);
  return all;
}

std::vector<std::string> C10dGroup::all_gather(const std::string& bytes) {
  return guarded("for the texts of all ranks", [&] {
    const Deadline deadline(options().timeout_s);
    const at::Tensor sizes =
        gather(at::scalar_tensor(static_cast<std::int64_t>(bytes.size()), at::kLong).view({1}), deadline);
    const auto* size_of = sizes.const_data_ptr<std::int64_t>();
    const std::int64_t largest = *std::max_element(size_of, size_of + size());
    std::vector<std::string> texts(static_cast<std::size_t>(size()));
    if (largest == 0) return texts;
    const at::Tensor mine = at::zeros({largest}, at::kByte);
    std::memcpy(mine.mutable_data_ptr(), bytes.data(), bytes.size());
    const at::Tensor all = gather(mine, deadline);
    for (std::int64_t i = 0; i < size(); ++i)
      texts[static_cast<std::size_t>(i)].assign(
          reinterpret_cast<const char*>(all.const_data_ptr<std::uint8_t>()) + i * largest,
          static_cast<std::size_t>(size_of[i]));
    return texts;
  });
}

// Each part happens even if one before it fails, as the message does when the store has gone.
void C10dGroup::leave(const std::string& reason) noexcept {
  const BlockedPipeSignal block;
  if (!backend_) return;
  closing_message_.leave(reason);
  for (const auto& [type, of_devices] : device_backends_) try {
      of_devices->abort();             // otherwise a GPU would wait forever
    } catch (const std::exception&) {  // the others will notice by themselves
    }
  for (StartedWork* const work : works_) work->give_up();
  release_backend();
  device_backends_.clear();
}

}  // namespace

std::shared_ptr<ProcessGroup> ProcessGroup::join(const LaunchEnvironment& place,
                                                 const DistributedOptions& options) {
  validate(options, "DistributedOptions");
  const Deadline deadline(options.timeout_s);
  const StorePointer store = open_store(place, options, deadline);
  // A machine that stops answering in the middle must not hold up this one.
  constexpr std::chrono::seconds kForError(3);
  const BlockedPipeSignal block;  // for the thread
  const auto group = answer_within(deadline.left() + kForError, [place, store, options, deadline] {
    store->setTimeout(deadline.left());
    auto joined = std::make_shared<C10dGroup>(place, store, options, deadline);
    store->setTimeout(milliseconds(options.timeout_s));
    return joined;
  });
  if (group) return *group;
  throw DistributedError(
      {.place = "rank " + std::to_string(place.rank) + " of " + std::to_string(place.size),
       .found = "it could not connect to all ranks within " + number_text(options.timeout_s) + " s",
       .wanted = "all " + std::to_string(place.size) + " ranks, on machines that reach each other",
       .remedy = "see the logs of the other ranks; GLOO_SOCKET_IFNAME names another network interface"});
}

std::vector<std::shared_ptr<ProcessGroup>> ProcessGroup::from_threads(std::int64_t size,
                                                                      const DistributedOptions& options) {
  validate(options, "DistributedOptions");
  if (size < 1)
    throw ConfigError({.place = "ProcessGroup::from_threads",
                       .found = "size is " + std::to_string(size),
                       .wanted = "at least 1"});
  const auto store = c10::make_intrusive<ThreadStore>();
  store->setTimeout(milliseconds(options.timeout_s));
  const Deadline deadline(options.timeout_s);
  std::vector<std::shared_ptr<ProcessGroup>> groups(static_cast<std::size_t>(size));
  const auto join = [&](std::size_t i) {
    const auto rank = static_cast<std::int64_t>(i);
    const LaunchEnvironment place{.rank = rank, .size = size, .local_rank = rank, .local_size = size};
    try {
      groups[i] = std::make_shared<C10dGroup>(place, store, options, deadline);
    } catch (...) {
      store->give_up(std::current_exception());
    }
  };
  std::vector<std::thread> threads;  // each waits for the others
  try {
    while (threads.size() < groups.size()) threads.emplace_back(join, threads.size());
  } catch (const std::system_error& error) {
    store->give_up(std::make_exception_ptr(DistributedError(
        {.place = "ProcessGroup::from_threads",
         .found = "cannot start the thread of rank " + std::to_string(threads.size()) + ": " + error.what(),
         .remedy = "use fewer ranks, or raise the limit (ulimit -u)"})));
  }
  for (std::thread& thread : threads) thread.join();
  if (store->error()) std::rethrow_exception(store->error());
  return groups;
}

}  // namespace kindling
