#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>

#include "bindings/trainer_handle.h"
#include "kindling/distributed/process_group.h"
#include "kindling/launch/launch_environment.h"

namespace kindling::bindings {
namespace {

bool is_resolved(const std::string& host) {
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, nullptr, &found) != 0) return false;
  ::freeaddrinfo(found);
  return true;
}

// Of the first interface that is up and no loopback; 127.0.0.1 without one.
std::string address_of_interface() {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return "127.0.0.1";
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(all, &::freeifaddrs);
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    constexpr unsigned kUp = 0x1, kLoopback = 0x8;  // IFF_UP, IFF_LOOPBACK
    if ((one->ifa_flags & kUp) == 0 || (one->ifa_flags & kLoopback) != 0) continue;
    std::array<char, NI_MAXHOST> text{};
    if (::getnameinfo(one->ifa_addr, sizeof(sockaddr_in), text.data(), text.size(), nullptr, 0,
                      NI_NUMERICHOST) == 0)
      return text.data();
  }
  return "127.0.0.1";
}

std::string own_address() {
  std::array<char, 256> name{};
  const bool is_known = ::gethostname(name.data(), name.size() - 1) == 0 && is_resolved(name.data());
  return is_known ? name.data() : address_of_interface();
}

int free_port(const char* place) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  socklen_t size = sizeof(any);
  auto* const address = reinterpret_cast<sockaddr*>(&any);
  const bool is_bound =
      socket >= 0 && ::bind(socket, address, size) == 0 && ::getsockname(socket, address, &size) == 0;
  const int error = errno;
  if (socket >= 0) ::close(socket);
  if (!is_bound)
    throw DistributedError(
        {.place = place, .found = std::string("no TCP port can be bound: ") + std::strerror(error)});
  return ntohs(any.sin_port);
}

}  // namespace
}  // namespace kindling::bindings

using namespace kindling;            // NOLINT: the functions of C are outside of namespaces
using namespace kindling::bindings;  // NOLINT

kindling_status kindling_group_join(int64_t rank, int64_t size, int64_t local_rank, const char* address,
                                    int32_t port, double timeout_s, kindling_group* group) {
  return call(__func__, [&, here = __func__] {
    require_pointer(address, here, "address");
    require_pointer(group, here, "group");
    if (size < 1 || rank < 0 || rank >= size || local_rank < 0 || local_rank > rank)
      refuse_use(here,
                 "rank " + std::to_string(rank) + " of " + std::to_string(size) + ", local rank " +
                     std::to_string(local_rank),
                 "0 <= local_rank <= rank < size");
    constexpr int32_t kMaxPort = 65535;
    if (port < 1 || port > kMaxPort)
      refuse_use(here, "port " + std::to_string(port), "a port from 1 to 65535");
    if (!(timeout_s >= 0) || std::isinf(timeout_s))
      refuse_use(here, "a timeout of " + std::to_string(timeout_s) + " s", "seconds, or 0 for the default");
    DistributedOptions options;
    if (timeout_s > 0) options.timeout_s = timeout_s;
    *group = groups().add(std::make_shared<std::shared_ptr<ProcessGroup>>(
        ProcessGroup::join({.rank = rank,
                            .size = size,
                            .local_rank = local_rank,
                            .local_size = local_rank + 1,
                            .launcher = "kindling_group_join",
                            .master_address = address,
                            .master_port = static_cast<std::uint16_t>(port)},
                           options)));
  });
}

kindling_status kindling_free_address(char* address, size_t capacity, int32_t* port) {
  return call(__func__, [&, here = __func__] {
    require_pointer(address, here, "address");
    require_pointer(port, here, "port");
    const std::string own = own_address();
    if (own.size() >= capacity)
      refuse_use(here, "room for " + std::to_string(capacity) + " bytes",
                 "room for " + std::to_string(own.size() + 1), "256 bytes are enough");
    const int found = free_port(here);
    std::memcpy(address, own.c_str(), own.size() + 1);
    *port = found;
  });
}

kindling_status kindling_group_free(kindling_group group) {
  return call(__func__, [&, here = __func__] {
    if (group != nullptr) groups().remove(group, here);
  });
}
