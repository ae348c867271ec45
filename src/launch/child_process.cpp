#include "launch/child_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <initializer_list>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/file_descriptor.h"
#include "kindling/base/error.h"
#include "launch/stop_signals.h"

namespace kindling {
namespace {

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Returns this process's variables, overridden by the given ones, each as "NAME=value".
std::vector<std::string> environment_with(std::map<std::string, std::string> variables) {
  variables[kParentVariable] = std::to_string(::getpid());
  std::vector<std::string> texts;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    if (!variables.contains(text.substr(0, text.find('=')))) texts.push_back(text);
  }
  for (const auto& [name, value] : variables) texts.push_back(name + "=" + value);
  return texts;
}

[[noreturn]] void fail_to_start(const std::string& program, const char* what, int code) {
  throw Error({.place = program,
               .found = std::string(what) + ": " + std::generic_category().message(code),
               .remedy = code == EAGAIN || code == ENOMEM
                             ? "start fewer processes, or raise the limit (ulimit -u)"
                             : "check that the program exists and is executable"});
}

// Everything that the new process needs is prepared before the fork: after it, the allocator's lock may be
// held forever by another thread.
struct Preparation {
  std::vector<std::string> arguments, variables;
  std::vector<char*> argv = pointers_to(arguments), envp = pointers_to(variables);
  const char* program;
  bool has_input_and_output;
  const char* output;  // empty: no file
  pid_t parent = ::getpid();
};

// Runs in the child. Returns the error number if the program cannot be run.
int execute(const Preparation& prepared, const ForwardedSignals& signals, const BlockedSignals& blocked) {
  ::setpgid(0, 0);
  signals.forget_in_child();
  // Prevents a stop for writing to a terminal whose foreground process is the launcher.
  ::signal(SIGTTOU, SIG_IGN);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // the parent has died before PR_SET_PDEATHSIG took effect
  if (::getppid() != prepared.parent) ::_exit(128 + SIGKILL);
  const int nowhere = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  // Reading from a terminal would stop it as well.
  if (!prepared.has_input_and_output || ::isatty(STDIN_FILENO) != 0) ::dup2(nowhere, STDIN_FILENO);
  if (!prepared.has_input_and_output) ::dup2(nowhere, STDOUT_FILENO);
  if (*prepared.output != '\0') {
    const int file = ::open(prepared.output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (file < 0) return errno;
    ::dup2(file, STDOUT_FILENO);
    ::dup2(file, STDERR_FILENO);
  }
  blocked.restore();
  ::execve(prepared.program, prepared.argv.data(), prepared.envp.data());
  return errno;
}

// Whether one of these sets of /proc/PID/status has the signal.
bool has_signal(pid_t process, std::initializer_list<std::string_view> sets, int signal) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string name, value; status >> name && std::getline(status, value);)
    if (std::ranges::find(sets, name) != sets.end() &&
        (std::stoull(value, nullptr, 16) >> (signal - 1) & 1) != 0)
      return true;
  return false;
}

}  // namespace

ChildProcess::ChildProcess(const ChildStart& start, const ForwardedSignals& signals) {
  const Preparation prepared{.arguments = start.command,
                             .variables = environment_with(start.variables),
                             .program = start.program.c_str(),
                             .has_input_and_output = start.has_input_and_output,
                             .output = start.output.c_str()};
  int result[2];  // reports why the program cannot be run; closed by one that runs
  if (::pipe2(result, O_CLOEXEC) != 0) fail_to_start(start.program, "cannot create a pipe", errno);
  {
    const BlockedSignals blocked;
    id_ = ::fork();
    if (id_ == 0) {
      const int code = execute(prepared, signals, blocked);
      [[maybe_unused]] const auto written = ::write(result[1], &code, sizeof code);
      ::_exit(127);
    }
  }
  const int fork_code = errno;
  ::close(result[1]);
  int code = 0;
  const auto size =
      id_ < 0 ? 0 : without_interruptions([&] { return ::read(result[0], &code, sizeof code); });
  ::close(result[0]);
  if (id_ < 0) fail_to_start(start.program, "cannot create a process", fork_code);
  if (size == 0) {
    is_running_ = true;
    return;
  }
  without_interruptions([&] { return ::waitpid(id_, nullptr, 0); });
  fail_to_start(start.program, "it cannot be run", code);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : id_(other.id_), is_running_(std::exchange(other.is_running_, false)) {}

ChildProcess::~ChildProcess() {
  if (!is_running_) return;
  send(SIGKILL);
  without_interruptions([&] { return ::waitpid(id_, nullptr, 0); });
}

std::optional<ProcessEnd> ChildProcess::take_end() {
  int status = 0;
  if (!is_running_ || ::waitpid(id_, &status, WNOHANG) != id_) return std::nullopt;
  is_running_ = false;
  if (WIFSIGNALED(status)) return ProcessEnd{.exit_code = 128 + WTERMSIG(status), .signal = WTERMSIG(status)};
  return ProcessEnd{.exit_code = WEXITSTATUS(status)};
}

void ChildProcess::send(int signal) const noexcept {
  if (is_running_) ::kill(-id_, signal);
}

bool ChildProcess::handles(int signal) const { return has_signal(id_, {"SigIgn:", "SigCgt:"}, signal); }

bool ChildProcess::catches(int signal) const { return has_signal(id_, {"SigCgt:"}, signal); }

}  // namespace kindling
