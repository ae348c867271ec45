#include "kindling/device/transfer_counts.h"

namespace kindling {

TransferCounts& transfer_counts() noexcept {
  thread_local TransferCounts counts;
  return counts;
}

}  // namespace kindling
