#pragma once

// Deprecated: moved to kindling/interop/compiled_package.h. This path is removed after the next release.
#include "kindling/interop/compiled_package.h"
