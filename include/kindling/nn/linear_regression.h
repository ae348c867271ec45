#pragma once

// Deprecated: moved to kindling/models/linear_regression.h. This path is removed after the next release.
#include "kindling/models/linear_regression.h"
