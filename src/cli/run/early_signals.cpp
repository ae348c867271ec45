#include "cli/run/early_signals.h"

#include <csignal>

namespace kindling {
namespace {

// No constructors run before the entry below.
struct sigaction inherited_pipe, inherited_file_size;

extern "C" void ignore_early_signals(int, char**, char**) {
  struct sigaction ignored {};
  ignored.sa_handler = SIG_IGN;
  ::sigaction(SIGUSR1, &ignored, nullptr);
  ::sigaction(SIGPIPE, &ignored, &inherited_pipe);
  ::sigaction(SIGXFSZ, &ignored, &inherited_file_size);
}

// The loader calls these entries of an executable before it initializes any shared library. Shared libraries
// cannot have them.
[[gnu::used, gnu::section(".preinit_array")]] void (*early_entry)(int, char**, char**) = ignore_early_signals;

}  // namespace

void restore_output_signals() noexcept {
  ::sigaction(SIGPIPE, &inherited_pipe, nullptr);
  ::sigaction(SIGXFSZ, &inherited_file_size, nullptr);
}

}  // namespace kindling
