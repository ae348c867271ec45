#pragma once

// Deprecated: renamed to kindling/config/count_or_fraction.h. This path is removed after the next release.
#include "kindling/config/count_or_fraction.h"
