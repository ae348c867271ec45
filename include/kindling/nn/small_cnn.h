#pragma once

// Deprecated: moved to kindling/models/small_cnn.h. This path is removed after the next release.
#include "kindling/models/small_cnn.h"
