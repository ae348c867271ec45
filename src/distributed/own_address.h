#pragma once

#include <cstdint>
#include <string>

namespace kindling {

// The address of this machine on the network by which it reaches another one, as the system would choose it;
// nothing is sent. Empty: there is no way, or no such machine.
std::string address_towards(const std::string& host, std::uint16_t port);

// Of this machine alone: nobody else reaches it there.
bool is_loopback_address(const std::string& address);

}  // namespace kindling
