#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "kindling/base/error.h"
#include "kindling/launch/launch_environment.h"

namespace kindling {
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
    if ((one->ifa_flags & IFF_UP) == 0 || (one->ifa_flags & IFF_LOOPBACK) != 0) continue;
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

std::uint16_t free_port() {
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
    throw Error({.place = "free_master_address",
                 .found = std::string("no TCP port can be bound: ") + std::strerror(error)});
  return ntohs(any.sin_port);
}

}  // namespace

MasterAddress free_master_address() { return {own_address(), free_port()}; }

}  // namespace kindling
