#pragma once

#include "kindling/cli/registry.h"

namespace kindling {

// The whole command line: `kindling fit | validate | test | predict | export | import | devices | bench |
// doctor | list`. Returns the exit code: 0 done, 1 run-time failure, 2 usage or config error, 3 data missing
// or broken, 4 diverged, 130 and 143 stopped by a signal. Prints results on stdout, everything else on
// stderr; installs handlers for SIGINT, SIGTERM and SIGUSR1 while a fit runs. `kindling::program` is the
// target to link.
int run_program(int argc, char** argv, const Registry& registry);

}  // namespace kindling
