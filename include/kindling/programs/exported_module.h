#pragma once

// Deprecated: moved to kindling/interop/exported_module.h. This path is removed after the next release.
#include "kindling/interop/exported_module.h"
