#pragma once

// Deprecated: moved to kindling/runs/run_folder.h. This path is removed after the next release.
#include "kindling/runs/run_folder.h"
