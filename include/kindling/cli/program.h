#pragma once

#include "kindling/cli/registry.h"

namespace kindling {

// The whole command line: `kindling fit | validate | test | predict | export | import | devices | bench |
// doctor | list`. Returns the exit code: 0 done, 1 run-time failure, 2 usage or config error, 3 data missing
// or broken, 4 diverged, 129, 130 and 143 stopped by SIGHUP, SIGINT or SIGTERM. Prints results on stdout,
// everything else on stderr.
//
// `kindling::program` is the target to link, into an executable: from before the first constructor on the
// executable ignores SIGUSR1, SIGPIPE and SIGXFSZ. Commands other than a fit restore the latter two. A fit
// handles SIGINT, SIGTERM, SIGHUP and SIGUSR1; once its result is durable they no longer change the exit
// code, to the end of the process.
int run_program(int argc, char** argv, const Registry& registry);

}  // namespace kindling
