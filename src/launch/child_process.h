#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "launch/forwarded_signals.h"

namespace kindling {

// How a process has ended.
struct ProcessEnd {
  int exit_code = 0;  // 128 + signal if a signal has ended it
  int signal = 0;     // 0: it has exited by itself
};

// The settings of a new process.
struct ChildStart {
  std::string program{};                           // its path
  std::vector<std::string> command{};              // its arguments, from its name on
  std::map<std::string, std::string> variables{};  // override or add to those of this process
  bool has_input_and_output = true;  // false: standard input and output are connected to /dev/null
  std::filesystem::path output{};    // a file that receives standard output and error instead; empty: none
};

// A program in a separate process and process group, which does not outlive the thread that started it.
class KINDLING_API ChildProcess {
 public:
  // Throws Error if the process cannot be created or the program cannot be run.
  ChildProcess(const ChildStart& start, const ForwardedSignals& signals);
  ~ChildProcess();  // kills it if it is running, and waits for its end
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;

  pid_t id() const noexcept { return id_; }
  // Returns the end of the process once; nothing before and after that.
  std::optional<ProcessEnd> take_end();
  bool is_running() const noexcept { return is_running_; }
  // Sends a signal to its whole group. Does nothing if it has ended.
  void send(int signal) const noexcept;
  // Whether the signal does not have its default action there: the process has a handler or ignores it.
  bool handles(int signal) const;
  // Whether it has a handler for the signal.
  bool catches(int signal) const;

 private:
  pid_t id_ = -1;
  bool is_running_ = false;
};

}  // namespace kindling
