#pragma once

// A program that links this ignores SIGUSR1, SIGPIPE and SIGXFSZ from before the first constructor on, those
// of LibTorch included: a request for a checkpoint may come before there is anything to save.
namespace kindling {

// Gives SIGPIPE and SIGXFSZ the dispositions that the program was started with, for commands whose reader may
// close the pipe early.
void restore_output_signals() noexcept;

}  // namespace kindling
