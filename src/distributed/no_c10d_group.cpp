#include "kindling/base/error.h"
#include "kindling/distributed/process_group.h"

// Used if LibTorch's c10d was not available when Kindling was built.
namespace kindling {
namespace {

[[noreturn]] void refuse() {
  throw DistributedError(
      {.place = "ProcessGroup",
       .found = "this build of Kindling has no c10d: its LibTorch's ProcessGroupGloo.hpp does not compile",
       .wanted = "LibTorch 2.11 to 2.15 with USE_DISTRIBUTED",
       .remedy = "see CMake's output about c10d"});
}

}  // namespace

std::shared_ptr<ProcessGroup> ProcessGroup::join(const LaunchEnvironment&, const DistributedOptions&) {
  refuse();
}

std::vector<std::shared_ptr<ProcessGroup>> ProcessGroup::from_threads(std::int64_t,
                                                                      const DistributedOptions&) {
  refuse();
}

}  // namespace kindling
