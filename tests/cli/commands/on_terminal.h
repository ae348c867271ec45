#pragma once

#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cli/commands/program_run.h"

namespace kindling {

struct OnTerminal {
  int exit_code = -1;  // -1: ended by a signal
  std::string screen;
};

struct TerminalOptions {
  unsigned short columns = 100;
  std::string variable = "LC_ALL", value = "C.UTF-8";      // of the environment, besides TERM=xterm
  std::function<void(int terminal, pid_t program)> act{};  // while the program runs, in another thread
  // After each piece of output, with all that has been shown so far.
  std::function<void(int terminal, const std::string& screen)> on_output{};
};

// Runs the program in a separate process on a terminal and returns its output.
inline OnTerminal run_on_terminal(std::vector<std::string> words, const TerminalOptions& options = {}) {
  words.insert(words.begin(), KINDLING_PROGRAM);
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  winsize size{.ws_row = 24, .ws_col = options.columns, .ws_xpixel = 0, .ws_ypixel = 0};
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
  if (child == 0) {
    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
    setenv(options.variable.c_str(), options.value.c_str(), 1);
    execv(argv[0], argv.data());
    _exit(127);
  }
  std::thread actor([&] {
    if (options.act) options.act(terminal, child);
  });
  OnTerminal result;
  char bytes[4096];
  for (ssize_t n; (n = read(terminal, bytes, sizeof bytes)) > 0;) {
    result.screen.append(bytes, static_cast<std::size_t>(n));
    if (options.on_output) options.on_output(terminal, result.screen);
  }
  actor.join();
  int status = 0;
  waitpid(child, &status, 0);
  ::close(terminal);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  return result;
}

// Waits until the file has a content, at most 30 s.
inline void wait_for_text_in(const std::filesystem::path& file) {
  for (int i = 0; i < 3000 && text_of(file).empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

}  // namespace kindling
