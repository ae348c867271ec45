// Loaded into a program by LD_PRELOAD: raises signals during the constructors of its libraries, before
// main().
#include <csignal>

__attribute__((constructor)) static void raise_signals() {
  ::raise(SIGUSR1);
  ::raise(SIGPIPE);
  ::raise(SIGXFSZ);
}
