#pragma once

namespace kindling {

// Runs the command line with everything that Kindling ships, as the program `kindling` does, and returns the
// exit code. Needs no header of LibTorch; programs that register names use kindling/cli/program.h, which
// describes the rest.
int run_program(int argc, char** argv);

}  // namespace kindling
