#include "program/stop_on_signal.h"

#include <unistd.h>

#include <csignal>
#include <optional>

namespace kindling {
namespace {

// A handler may touch nothing but lock-free atomics.
std::optional<StopToken> current_token;
volatile std::sig_atomic_t received = 0;
struct sigaction former_int, former_term;

extern "C" void ask_for_stop(int signal) {
  if (received != 0) _exit(128 + signal);
  received = signal;
  current_token->request_stop();
}

}  // namespace

StopOnSignal::StopOnSignal(StopToken token) {
  current_token = std::move(token);
  received = 0;
  struct sigaction action {};
  action.sa_handler = ask_for_stop;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, &former_int);
  sigaction(SIGTERM, &action, &former_term);
}

StopOnSignal::~StopOnSignal() {
  sigaction(SIGINT, &former_int, nullptr);
  sigaction(SIGTERM, &former_term, nullptr);
  current_token.reset();
}

int StopOnSignal::signal() const noexcept { return received; }

}  // namespace kindling
