#include <gtest/gtest.h>

#include "distributed/c10d_store.h"

namespace kindling {
namespace {

TEST(OwnAddress, IsTheOneOnTheRouteToTheStore) {
  EXPECT_EQ(address_towards("127.0.0.1", 29500), "127.0.0.1");
  EXPECT_TRUE(is_loopback_address(address_towards("localhost", 29500)));
  EXPECT_EQ(address_towards("no.such.host.invalid", 29500), "");  // RFC 6761: nobody has this name
}

TEST(OwnAddress, OnLoopbackIsForThisMachineOnly) {
  for (const char* address : {"127.0.0.1", "127.0.1.1", "::1", "::ffff:127.0.0.1"})
    EXPECT_TRUE(is_loopback_address(address)) << address;
  for (const char* address : {"", "10.0.0.1", "128.0.0.1", "::10", "fe80::1%eth0"})
    EXPECT_FALSE(is_loopback_address(address)) << address;
}

}  // namespace
}  // namespace kindling
