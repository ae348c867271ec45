#pragma once

// Deprecated: moved to kindling/models/lenet.h. This path is removed after the next release.
#include "kindling/models/lenet.h"
