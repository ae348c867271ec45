#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kindling/launch/launch_environment.h"

namespace kindling {
namespace {

TEST(MasterAddress, HasAHostThatResolvesAndAPortThatCanBeBound) {
  const MasterAddress address = free_master_address();
  addrinfo* found = nullptr;
  ASSERT_EQ(::getaddrinfo(address.host.c_str(), nullptr, nullptr, &found), 0) << address.host;
  ::freeaddrinfo(found);
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(address.port);
  EXPECT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&any), sizeof(any)), 0) << address.port;
  ::close(socket);
}

}  // namespace
}  // namespace kindling
