#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launch/forwarded_signals.h"

namespace kindling {

// How a process has ended.
struct ProcessEnd {
  int exit_code = 0;  // 128 + signal, when one has ended it
  int signal = 0;     // 0: it has left by itself
};

// What a process is started with.
struct ChildStart {
  std::string program{};                           // its path
  std::vector<std::string> command{};              // its arguments, from its name on
  std::map<std::string, std::string> variables{};  // beside those of this process, or in their place
  bool has_input_and_output = true;                // false: standard input and output lead nowhere
};

// A program in a process and a process group of its own, which does not outlive the thread that started it.
class ChildProcess {
 public:
  // Throws Error when the process cannot be made or the program cannot be run.
  ChildProcess(const ChildStart& start, const ForwardedSignals& signals);
  ~ChildProcess();  // kills it when it is running, and waits for its end
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;

  pid_t id() const noexcept { return id_; }
  // When it ends between two calls, the first one to see it says so; afterwards nothing.
  std::optional<ProcessEnd> take_end();
  bool is_running() const noexcept { return is_running_; }
  // To its whole group. Nothing happens when it has ended.
  void send(int signal) const noexcept;
  // Whether the signal does not have its default action there: the process has a handler or ignores it.
  bool handles(int signal) const;

 private:
  pid_t id_ = -1;
  bool is_running_ = false;
};

}  // namespace kindling
