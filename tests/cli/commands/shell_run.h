#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "cli/commands/program_run.h"
#include "support/scratch.h"

namespace kindling {

struct ShellRun {
  int exit_code;
  std::string err;
};

// Runs lines of bash in which the word `kindling` is the program. Keeps stderr.
inline ShellRun run_in_shell(const std::string& lines, const Scratch& scratch) {
  const std::string err = (scratch / "err.txt").string();
  std::ofstream(scratch / "run.sh") << "exec 2> '" << err
                                    << "'\nkindling() { '" KINDLING_PROGRAM "' \"$@\"; }\n"
                                    << lines << "\n";
  const int status = std::system(("bash '" + (scratch / "run.sh").string() + "'").c_str());
  return {WEXITSTATUS(status), text_of(err)};
}

}  // namespace kindling
