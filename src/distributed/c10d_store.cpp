#include "distributed/c10d_store.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <memory>
#include <thread>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "distributed/blocked_pipe_signal.h"
#include "kindling/base/error.h"

namespace kindling {
namespace {

std::vector<std::uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

std::string text_at(c10d::Store& store, const std::string& key) {
  const auto bytes = store.get(key);
  return {bytes.begin(), bytes.end()};
}

std::string left_key(std::int64_t rank) { return "left/" + std::to_string(rank); }
std::string address_key(std::int64_t rank) { return "address/" + std::to_string(rank); }

StorePointer store_of(const LaunchEnvironment& place, const DistributedOptions& options) {
  if (!place.store_file.empty())
    return c10::make_intrusive<c10d::FileStore>(place.store_file.string(), static_cast<int>(place.size));
  c10d::TCPStoreOptions tcp;
  tcp.port = place.master_port;
  tcp.isServer = !place.has_agent_store && place.rank == 0;
  if (!place.has_agent_store) tcp.numWorkers = static_cast<std::size_t>(place.size);
  tcp.waitWorkers = false;
  tcp.timeout = milliseconds(options.timeout_s);
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

}  // namespace

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::max(seconds * 1000, 1.)));
}

std::string first_sentence(std::string text) {
  if (text.starts_with('[')) text.erase(0, text.find("] ") + 2);
  return text.substr(0, std::min(text.find('\n'), text.find(". ")));
}

StorePointer open_store(const LaunchEnvironment& place, const DistributedOptions& options) {
  StorePointer store;
  const BlockedPipeSignal block;  // for the thread of the server
  try {
    store = store_of(place, options);
    store->setTimeout(milliseconds(options.timeout_s));
  } catch (const std::exception& error) {
    throw DistributedError(
        {.place = "rank " + std::to_string(place.rank) + " of " + std::to_string(place.size),
         .found = "the store at " + name_of_store(place) + " does not answer (" +
                  first_sentence(error.what()) + ")",
         .wanted = "an address that all ranks can reach, and a running rank 0",
         .remedy = "check MASTER_ADDR and MASTER_PORT"});
  }
  // A launcher that restarts a group keeps its store.
  return c10::make_intrusive<c10d::PrefixStore>("kindling/" + std::to_string(place.restart_count), store);
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

void ClosingMessage::leave(const std::string& reason) {
  if (is_reachable_) store_->set(left_key(rank_), bytes_of(reason));
}

// If the network connection to the store is cut, a request blocks for as long as TCP retries, a quarter of an
// hour. It is made from a detached thread with a shorter timeout.
std::string ClosingMessage::of_others() {
  if (!is_reachable_) return {};
  std::packaged_task<std::string()> ask(
      [store = store_, rank = rank_, size = size_] { return reasons_in(*store, rank, size); });
  std::future<std::string> answer = ask.get_future();
  std::thread(std::move(ask)).detach();
  is_reachable_ = answer.wait_for(longest_answer_) == std::future_status::ready;
  return is_reachable_ ? answer.get() : "";
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
