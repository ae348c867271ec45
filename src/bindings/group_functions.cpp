#include <cmath>
#include <cstring>
#include <memory>
#include <string>

#include "bindings/trainer_handle.h"
#include "kindling/distributed/process_group.h"
#include "kindling/launch/launch_environment.h"

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
    const auto [host, free_port] = free_master_address();
    if (host.size() >= capacity)
      refuse_use(here, "room for " + std::to_string(capacity) + " bytes",
                 "room for " + std::to_string(host.size() + 1), "256 bytes are enough");
    std::memcpy(address, host.c_str(), host.size() + 1);
    *port = free_port;
  });
}

kindling_status kindling_group_free(kindling_group group) {
  return call(__func__, [&, here = __func__] {
    if (group != nullptr) groups().remove(group, here);
  });
}
