#include "distributed/c10d_store.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "distributed/blocked_pipe_signal.h"
#include "kindling/base/error.h"
#include "kindling/base/number_text.h"

namespace kindling {
namespace {

std::vector<std::uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

std::string text_at(c10d::Store& store, const std::string& key) {
  const auto bytes = store.get(key);
  return {bytes.begin(), bytes.end()};
}

std::string claim_key(std::int64_t rank) { return "claim/" + std::to_string(rank); }
std::string joined_key(std::int64_t rank) { return "joined/" + std::to_string(rank); }
std::string left_key(std::int64_t rank) { return "left/" + std::to_string(rank); }
std::string address_key(std::int64_t rank) { return "address/" + std::to_string(rank); }

std::string text_of(const LaunchEnvironment& place) {
  return "rank " + std::to_string(place.rank) + " of " + std::to_string(place.size);
}

// LibTorch's looks for a value every 10 ms, and a start waits for several in turn.
class QuickFileStore : public c10d::FileStore {
 public:
  using FileStore::FileStore;
  using FileStore::wait;

  std::vector<std::uint8_t> get(const std::string& key) override {
    wait_while_young({key}, timeout_);
    return FileStore::get(key);
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    wait_while_young(keys, timeout);
    FileStore::wait(keys, timeout);
  }

 private:
  // Returns when the values are there, or after a moment: others may be late by minutes.
  void wait_while_young(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) {
    constexpr std::chrono::milliseconds kMoment(200);
    constexpr std::chrono::microseconds kPause(500);
    const auto end = std::chrono::steady_clock::now() + std::min(timeout, kMoment);
    while (!check(keys) && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(kPause);
  }
};

StorePointer store_of(const LaunchEnvironment& place, const Deadline& deadline) {
  if (!place.store_file.empty())
    return c10::make_intrusive<QuickFileStore>(place.store_file.string(), static_cast<int>(place.size));
  c10d::TCPStoreOptions tcp;
  tcp.port = place.master_port;
  tcp.isServer = !place.has_agent_store && place.rank == 0;
  if (!place.has_agent_store) tcp.numWorkers = static_cast<std::size_t>(place.size);
  tcp.waitWorkers = false;
  tcp.timeout = deadline.left();
  return c10::make_intrusive<c10d::TCPStore>(place.master_address, tcp);
}

std::string name_of_store(const LaunchEnvironment& place) {
  return place.store_file.empty() ? place.master_address + ":" + std::to_string(place.master_port)
                                  : place.store_file.string();
}

std::string reasons_in(c10d::Store& store, std::int64_t rank, std::int64_t size) {
  std::string text;
  try {
    for (std::int64_t other = 0; other < size; ++other) {
      if (other == rank || !store.check({left_key(other)})) continue;
      text += (text.empty() ? "rank " : "; rank ") + std::to_string(other) + ": " +
              text_at(store, left_key(other));
    }
  } catch (const std::exception&) {  // the store is gone too
  }
  return text;
}

// Connecting a datagram socket only looks up the route.
std::string address_towards(const addrinfo& other) {
  const int socket = ::socket(other.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return {};
  sockaddr_storage own{};
  auto* const address = reinterpret_cast<sockaddr*>(&own);
  socklen_t size = sizeof own;
  char text[NI_MAXHOST] = "";
  const bool is_known = ::connect(socket, other.ai_addr, other.ai_addrlen) == 0 &&
                        ::getsockname(socket, address, &size) == 0 &&
                        ::getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0;
  ::close(socket);
  return is_known ? text : "";
}

bool accepts(const addrinfo& address) {
  constexpr int kPatience_ms = 500;
  const int socket = ::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) return false;
  ::connect(socket, address.ai_addr, address.ai_addrlen);
  pollfd connected{.fd = socket, .events = POLLOUT, .revents = 0};
  int error = 0;
  socklen_t size = sizeof error;
  const bool is_open = ::poll(&connected, 1, kPatience_ms) == 1 &&
                       ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
  ::close(socket);
  return is_open;
}

// True if some process listens on the port of the store, which rank 0 then cannot use unless it is this one.
bool is_port_taken(const LaunchEnvironment& place) {
  if (!place.store_file.empty()) return false;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(place.master_address.c_str(), std::to_string(place.master_port).c_str(), &hints,
                    &found) != 0)
    return false;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all(found, ::freeaddrinfo);
  for (const addrinfo* one = all.get(); one != nullptr; one = one->ai_next)
    if (accepts(*one)) return true;
  return false;
}

}  // namespace

std::chrono::milliseconds milliseconds(double seconds) {
  constexpr double kThirtyYears_ms = 1e12;  // more would overflow the clock
  return std::chrono::milliseconds(
      static_cast<std::int64_t>(std::max(1., std::min(kThirtyYears_ms, seconds * 1000))));
}

std::chrono::milliseconds Deadline::left() const {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end_ - std::chrono::steady_clock::now());
  return std::max(left, std::chrono::milliseconds(1));
}

std::string first_sentence(std::string text) {
  if (text.starts_with('[')) text.erase(0, text.find("] ") + 2);
  return text.substr(0, std::min(text.find('\n'), text.find(". ")));
}

// A client connects twice before it gives up, and a server that accepts without answering makes it wait
// without a limit.
StorePointer open_store(const LaunchEnvironment& place, const DistributedOptions& options,
                        const Deadline& deadline) {
  const BlockedPipeSignal block;  // for the thread of the server
  std::string reason = "no answer for " + number_text(options.timeout_s) + " s";
  bool is_port_in_use = false;
  try {
    // A store that cannot be opened should say why, in the second before it counts as silent.
    const auto store = answer_within(deadline.left() + std::chrono::seconds(1),
                                     [place, deadline] { return store_of(place, deadline); });
    // A launcher that restarts a group keeps its store.
    if (store)
      return c10::make_intrusive<c10d::PrefixStore>("kindling/" + std::to_string(place.restart_count),
                                                    *store);
  } catch (const std::exception& error) {
    reason = first_sentence(error.what());
    is_port_in_use = std::string(error.what()).find("EADDRINUSE") != std::string::npos;
  }
  if (is_port_in_use)
    throw DistributedError(
        {.place = text_of(place),
         .found = "port " + std::to_string(place.master_port) + " is in use (" + reason + ")",
         .wanted = "a free port for the store, and one process with rank 0",
         .remedy = "give each process a distinct rank, or set another MASTER_PORT"});
  const bool is_taken = is_port_taken(place);
  throw DistributedError(
      {.place = text_of(place),
       .found = "the store at " + name_of_store(place) + " does not answer (" + reason + ")" +
                (is_taken ? ", but a process listens on this port, which may be another program" : ""),
       .wanted = "an address that all ranks can reach, and a running rank 0",
       .remedy = is_taken ? "set another MASTER_PORT" : "check MASTER_ADDR and MASTER_PORT"});
}

// The ranks of torchrun's agent are distinct, and programs that it runs one after the other find the entries
// of the former one in its store.
void meet(c10d::Store& store, const LaunchEnvironment& place, const Deadline& deadline) {
  if (store.add(claim_key(place.rank), 1) > 1 && !place.has_agent_store)
    throw DistributedError(
        {.place = text_of(place),
         .found = "another process has already joined as rank " + std::to_string(place.rank),
         .wanted = "one process for each rank, and a store that no other run uses",
         .remedy =
             "give each process a distinct rank; restart all ranks if one was restarted alone; wait for "
             "the end of an earlier run, or set another MASTER_PORT"});
  store.set(joined_key(place.rank), bytes_of("1"));  // wakes those that wait, as add() does not in all stores
  std::vector<std::string> keys;
  for (std::int64_t rank = 0; rank < place.size; ++rank) keys.push_back(joined_key(rank));
  const auto limit = deadline.left();
  try {
    store.wait(keys, limit);
  } catch (const std::exception&) {
    for (std::int64_t rank = 0; rank < place.size; ++rank)
      if (!store.check({joined_key(rank)}))
        throw DistributedError({.place = text_of(place),
                                .found = "rank " + std::to_string(rank) + " has not joined within " +
                                         number_text(std::round(limit.count() / 100.) / 10) + " s",
                                .wanted = "all " + std::to_string(place.size) + " ranks",
                                .remedy = "see the log of that rank"});
    throw;
  }
}

// Returns this machine's address on the route to the store's machine. The latter may resolve its own name
// only to loopback (127.0.1.1 in /etc/hosts); it then takes the address from a rank on another machine. A
// rank that knows that all ranks are on one machine does not ask, but still answers, because launchers may
// not report this to all ranks.
std::string address_among(c10d::Store& store, const LaunchEnvironment& place) {
  constexpr const char* kLoopback = "127.0.0.1";
  if (place.master_address.empty()) return kLoopback;
  const bool are_here = place.local_size == place.size;
  const std::string own = are_here ? kLoopback : address_towards(place.master_address, place.master_port);
  store.set(address_key(place.rank), bytes_of(own));
  for (std::int64_t other = 0; !are_here && other < place.size && is_loopback_address(own); ++other) {
    const std::string theirs = text_at(store, address_key(other));
    if (!theirs.empty() && !is_loopback_address(theirs)) return address_towards(theirs, place.master_port);
  }
  return own;
}

void ThreadStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  std::unique_lock lock(m_);
  const auto are_set = [&] {
    return std::ranges::all_of(keys, [&](const auto& key) { return map_.contains(key); });
  };
  const bool is_over = cv_.wait_for(lock, timeout, [&] { return error_ || are_set(); });
  if (!is_over || error_) throw std::runtime_error(error_ ? "it could not join" : "timeout");
}

void ThreadStore::give_up(std::exception_ptr error) {
  const std::lock_guard lock(m_);
  if (!error_) error_ = std::move(error);
  cv_.notify_all();
}

// If the network connection to the store is cut, a request blocks for as long as TCP retries, a quarter of an
// hour.
template <class Call>
std::string ClosingMessage::ask(Call call) noexcept {
  if (!is_reachable_) return {};
  is_reachable_ = false;
  try {
    if (auto answer = answer_within(longest_answer_, std::move(call))) {
      is_reachable_ = true;
      return *std::move(answer);
    }
  } catch (const std::exception&) {  // it is gone, or the system has no more threads
  }
  return {};
}

void ClosingMessage::leave(const std::string& reason) noexcept {
  ask([store = store_, rank = rank_, reason] {
    store->set(left_key(rank), bytes_of(reason));
    return std::string();
  });
}

std::string ClosingMessage::of_others() noexcept {
  return ask([store = store_, rank = rank_, size = size_] { return reasons_in(*store, rank, size); });
}

std::string address_towards(const std::string& host, std::uint16_t port) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all(found, &::freeaddrinfo);
  for (const addrinfo* other = found; other != nullptr; other = other->ai_next)
    if (std::string own = address_towards(*other); !own.empty()) return own;
  return {};
}

bool is_loopback_address(const std::string& address) {
  return address == "::1" || address.starts_with("127.") || address.starts_with("::ffff:127.");
}

}  // namespace kindling
