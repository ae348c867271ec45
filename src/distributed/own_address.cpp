#include "distributed/own_address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>

namespace kindling {
namespace {

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
