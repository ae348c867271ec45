#include "cli/run/stop_on_signal.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <list>
#include <vector>

#include "base/system.h"
#include "launch/stop_signals.h"

namespace kindling {
namespace {

constexpr int kNotFinished = -1;

// A handler may only access lock-free atomics and objects that do not change while handlers are installed.
std::list<StopToken> tokens;  // a handler may still use an earlier one
std::atomic<const StopToken*> current_token = nullptr;
std::shared_ptr<ModelCheckpoint> current_checkpoint;
std::atomic<bool> is_watching = false, stops_on_usr1 = false, has_seen_usr1 = false, has_early_usr1 = false;
std::atomic<int> received = 0, finished_code = kNotFinished;
StopSignals stop_signals;

struct FormerAction {
  int signal;
  struct sigaction action;
};
std::vector<FormerAction> former_actions;
bool defers_stops = false;

static_assert(std::atomic<const StopToken*>::is_always_lock_free);
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

extern "C" void handle_stop(int signal, siginfo_t* info, void*) {
  const int code = finished_code;
  const StopSignals::Meaning meaning = stop_signals.take(*info, steady_ms());
  if (meaning == StopSignals::Meaning::repetition) return;
  if (meaning == StopSignals::Meaning::end_now) _exit(code == kNotFinished ? 128 + signal : code);
  received = signal;
  if (const StopToken* token = current_token) token->request_stop();
}

// A later stop signal takes its place.
void stop_because_of_usr1() {
  if (finished_code != kNotFinished) return;
  int none = 0;
  received.compare_exchange_strong(none, SIGUSR1);
  if (const StopToken* token = current_token) token->request_stop();
}

extern "C" void handle_usr1(int) {
  has_seen_usr1 = true;
  if (stops_on_usr1) {
    stop_because_of_usr1();
  } else if (is_watching) {
    current_checkpoint->request_save();
  }
}

void set_action(int signal, struct sigaction action) {
  action.sa_flags |= SA_RESTART;
  FormerAction& former = former_actions.emplace_back(FormerAction{.signal = signal, .action = {}});
  sigaction(signal, &action, &former.action);
}

void set_handler(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  set_action(signal, action);
}

void stop_on(int signal) {
  struct sigaction action {};
  action.sa_sigaction = handle_stop;
  action.sa_flags = SA_SIGINFO;
  set_action(signal, action);
}

}  // namespace

extern "C" void note_early_usr1(int) { has_early_usr1 = true; }

StopOnSignal::StopOnSignal() {
  received = 0;
  finished_code = kNotFinished;
  stops_on_usr1 = has_seen_usr1 = false;
  former_actions.clear();
  set_handler(SIGUSR1, handle_usr1);
  if (has_early_usr1.exchange(false)) has_seen_usr1 = true;
  set_handler(SIGPIPE, SIG_IGN);
  set_handler(SIGXFSZ, SIG_IGN);
}

void StopOnSignal::defer_stops() {
  if (defers_stops) return;
  defers_stops = true;
  stop_signals.reset();
  stop_on(SIGINT);
  stop_on(SIGTERM);
  if (!is_ignored(SIGHUP)) stop_on(SIGHUP);
}

void StopOnSignal::stop_on_usr1() {
  stops_on_usr1 = true;
  if (has_seen_usr1) stop_because_of_usr1();
}

void StopOnSignal::watch(StopToken token, std::shared_ptr<ModelCheckpoint> checkpoint) {
  defer_stops();
  tokens.push_back(std::move(token));
  current_token = &tokens.back();
  if (received != 0) tokens.back().request_stop();
  if (is_watching) return;
  current_checkpoint = std::move(checkpoint);
  is_watching = true;
}

void StopOnSignal::finish(int exit_code) {
  defer_stops();
  is_watching = false;
  finished_code = exit_code;
  stop_signals.forget();
  received = 0;
}

StopOnSignal::~StopOnSignal() {
  is_watching = false;
  defers_stops = false;
  current_token = nullptr;
  if (finished_code == kNotFinished)
    for (const auto& [signal, action] : former_actions) sigaction(signal, &action, nullptr);
  tokens.clear();
  current_checkpoint.reset();
}

int StopOnSignal::signal() const noexcept { return received; }

}  // namespace kindling
