#pragma once

// Deprecated: moved to kindling/cli/program.h. This path is removed after the next release.
#include "kindling/cli/program.h"
