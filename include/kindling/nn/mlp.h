#pragma once

// Deprecated: moved to kindling/models/mlp.h. This path is removed after the next release.
#include "kindling/models/mlp.h"
