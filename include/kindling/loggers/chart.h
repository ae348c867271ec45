#pragma once

// Deprecated: moved to kindling/charts/chart.h. This path is removed after the next release.
#include "kindling/charts/chart.h"
