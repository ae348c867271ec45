// Loaded into a program by LD_PRELOAD: it leaves with code 1 at a SIGUSR2, wherever it is.
#include <unistd.h>

#include <csignal>

extern "C" void leave(int) { ::_exit(1); }

__attribute__((constructor)) static void leave_on_signal() { ::signal(SIGUSR2, leave); }
