#pragma once

#include <cstdint>
#include <string>

namespace kindling {

// Returns this machine's address on the network route to another one, as the system would choose it; sends
// nothing. Empty: no route or no such machine.
std::string address_towards(const std::string& host, std::uint16_t port);

// True if only this machine can reach the address.
bool is_loopback_address(const std::string& address);

}  // namespace kindling
