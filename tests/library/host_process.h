// Process-wide state that any code can change, and comparisons with an earlier state.
#pragma once

#include <immintrin.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <locale>
#include <map>
#include <new>
#include <sstream>
#include <string>

extern char** environ;  // NOLINT: POSIX's name

namespace kindling {

// Settings of the process and of the calling thread, each with a name: two states compare and print.
using HostProcess = std::map<std::string, std::string>;

inline std::string text_of(const sigset_t& signals) {
  std::string text;
  for (int number = 1; number < NSIG; ++number) text += sigismember(&signals, number) == 1 ? '1' : '0';
  return text;
}

inline std::string handler_of(int number) {
  struct sigaction action {};
  if (::sigaction(number, nullptr, &action) != 0) return "none";
  std::ostringstream text;
  text << reinterpret_cast<void*>(action.sa_handler) << " " << action.sa_flags << " "
       << text_of(action.sa_mask);
  return text.str();
}

inline void add_signals(HostProcess& process) {
  for (int number = 1; number < NSIG; ++number)
    process["signal " + std::to_string(number)] = handler_of(number);
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  process["blocked signals"] = text_of(blocked);
}

inline void add_log(HostProcess& process) {
  std::ostringstream logger;
  logger << spdlog::default_logger_raw() << " " << static_cast<int>(spdlog::default_logger_raw()->level())
         << " " << spdlog::default_logger_raw()->sinks().size() << " "
         << static_cast<int>(spdlog::get_level());
  spdlog::apply_all(
      [&](const std::shared_ptr<spdlog::logger>& known) { logger << " '" << known->name() << "'"; });
  process["spdlog"] = logger.str();
}

inline HostProcess host_process() {
  HostProcess process;
  add_signals(process);
  add_log(process);
  // The upper bits: rounding, exceptions that trap, denormals. The lower six only tell what arithmetic has
  // met.
  process["MXCSR"] = std::to_string(_mm_getcsr() & ~0x3FU);
  process["locale"] = std::setlocale(LC_ALL, nullptr);
  process["C++ locale"] = std::locale().name();
  process["folder"] = std::filesystem::current_path();
  for (char** variable = environ; *variable != nullptr; ++variable)
    process["environment"] += std::string(*variable) + "\n";
  std::ostringstream handlers;
  handlers << reinterpret_cast<void*>(std::get_terminate()) << " "
           << reinterpret_cast<void*>(std::get_new_handler());
  process["terminate and new"] = handlers.str();
  for (const std::ostream* stream : {&std::cout, &std::cerr, &std::clog})
    process["streams"] += std::to_string(stream->flags()) + " " + std::to_string(stream->precision()) + "\n";
  return process;
}

// Captures everything written to stdout and stderr during its lifetime.
class CapturedOutput {
 public:
  explicit CapturedOutput(const std::filesystem::path& file) : file_(file), out_(::dup(1)), err_(::dup(2)) {
    flush();
    FILE* const target = std::fopen(file_.c_str(), "w");
    ::dup2(fileno(target), 1);
    ::dup2(fileno(target), 2);
    std::fclose(target);
  }
  ~CapturedOutput() { text(); }
  CapturedOutput(const CapturedOutput&) = delete;
  CapturedOutput& operator=(const CapturedOutput&) = delete;

  // Ends the capture.
  std::string text() {
    flush();
    if (out_ >= 0) {
      ::dup2(out_, 1);
      ::dup2(err_, 2);
      ::close(out_);
      ::close(err_);
      out_ = -1;
    }
    std::ostringstream text;
    text << std::ifstream(file_).rdbuf();
    return text.str();
  }

 private:
  static void flush() {
    std::fflush(nullptr);
    std::cout.flush();
    std::cerr.flush();
  }
  std::filesystem::path file_;
  int out_, err_;
};

}  // namespace kindling
