#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "kindling/distributed/process_group.h"

namespace kindling {

// Where processes leave words for each other before they are connected, and when one goes.
struct StorePlace {
  std::filesystem::path file{};  // of processes of one machine; else the address
  std::string address{};
  std::uint16_t port = 0;
  bool is_served = false;  // by a launcher; else process 0 serves it
  std::string prefix{};    // of this attempt, where several use one store
  bool is_local = false;   // all processes are on this machine: their traffic does not leave it
};

// Joins the others; throws DistributedError when they do not come within the timeout.
std::shared_ptr<ProcessGroup> join_group(std::int64_t rank, std::int64_t size, const StorePlace& store,
                                         const DistributedOptions& options);

}  // namespace kindling
