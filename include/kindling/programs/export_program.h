#pragma once

// Deprecated: moved to kindling/interop/export_program.h. This path is removed after the next release.
#include "kindling/interop/export_program.h"
