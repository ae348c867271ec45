#include "cli/run/stop_on_signal.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <list>

namespace kindling {
namespace {

// A handler may touch nothing but lock-free atomics, and what stays as it is while handlers are in place.
std::list<StopToken> tokens;  // where a handler may still be at work on them
std::atomic<const StopToken*> current_token = nullptr;
std::shared_ptr<ModelCheckpoint> current_checkpoint;
std::atomic<bool> is_watching = false;
std::atomic<int> received = 0;
struct sigaction former_int, former_term, former_usr1;

static_assert(std::atomic<const StopToken*>::is_always_lock_free);
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

extern "C" void handle_stop(int signal) {
  if (received.exchange(signal) != 0) _exit(128 + signal);
  current_token.load()->request_stop();
}

extern "C" void handle_save(int) {
  if (is_watching) current_checkpoint->request_save();
}

void handle(int signal, void (*handler)(int), struct sigaction& former) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, &former);
}

}  // namespace

StopOnSignal::StopOnSignal() {
  received = 0;
  handle(SIGUSR1, handle_save, former_usr1);
}

void StopOnSignal::watch(StopToken token, std::shared_ptr<ModelCheckpoint> checkpoint) {
  tokens.push_back(std::move(token));
  current_token = &tokens.back();
  if (is_watching) {
    if (received != 0) tokens.back().request_stop();
    return;
  }
  current_checkpoint = std::move(checkpoint);
  is_watching = true;
  handle(SIGINT, handle_stop, former_int);
  handle(SIGTERM, handle_stop, former_term);
}

StopOnSignal::~StopOnSignal() {
  if (is_watching.exchange(false)) {
    sigaction(SIGINT, &former_int, nullptr);
    sigaction(SIGTERM, &former_term, nullptr);
  }
  sigaction(SIGUSR1, &former_usr1, nullptr);
  current_token = nullptr;
  tokens.clear();
  current_checkpoint.reset();
}

int StopOnSignal::signal() const noexcept { return received; }

}  // namespace kindling
