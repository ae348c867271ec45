#include "kindling/base/version.h"

namespace kindling {

const char* version() noexcept { return KINDLING_VERSION; }

}  // namespace kindling
