#pragma once

// Deprecated: moved to kindling/cli/registry.h. This path is removed after the next release.
#include "kindling/cli/registry.h"
