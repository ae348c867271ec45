#pragma once

// Deprecated: moved to kindling/models/softmax_regression.h. This path is removed after the next release.
#include "kindling/models/softmax_regression.h"
