#include "kindling/cli/program.h"

#include <csignal>
#include <iostream>
#include <map>
#include <string>
#include <string_view>

#include "cli/commands/commands.h"
#include "cli/config/exit_codes.h"
#include "cli/run/lost_output.h"
#include "cli/run/process_settings.h"
#include "cli/run/stop_on_signal.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/base/text.h"
#include "kindling/cli/builtin_program.h"

namespace kindling {
namespace {

// The program ignores SIGPIPE and SIGXFSZ, and notes SIGUSR1, from before the first constructor on, those of
// LibTorch included: a request may come before there is anything to save.
// No constructors run before the entry below.
struct sigaction inherited_pipe, inherited_file_size;

extern "C" void prepare_for_early_signals(int, char**, char**) {
  struct sigaction noted {};
  noted.sa_handler = note_early_usr1;
  noted.sa_flags = SA_RESTART;
  ::sigaction(SIGUSR1, &noted, nullptr);
  struct sigaction ignored {};
  ignored.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignored, &inherited_pipe);
  ::sigaction(SIGXFSZ, &ignored, &inherited_file_size);
}

// The loader calls these entries of an executable before it initializes any shared library. Shared libraries
// cannot have them.
[[gnu::used, gnu::section(".preinit_array")]] void (*early_entry)(int, char**,
                                                                  char**) = prepare_for_early_signals;

// Gives SIGPIPE and SIGXFSZ the dispositions that the program was started with, for commands whose reader may
// close the pipe early.
void restore_output_signals() noexcept {
  ::sigaction(SIGPIPE, &inherited_pipe, nullptr);
  ::sigaction(SIGXFSZ, &inherited_file_size, nullptr);
}

int run(const CommandContext& context) {
  static const std::map<std::string, int (*)(const CommandContext&)> commands{
      {"fit", fit_command},       {"config", config_command},   {"validate", validate_command},
      {"test", test_command},     {"predict", predict_command}, {"devices", devices_command},
      {"doctor", doctor_command}, {"list", list_command},       {"bench", bench_command},
      {"export", export_command}, {"import", import_command},   {"diff", diff_command},
      {"replay", replay_command}, {"blame", blame_command},     {"plot", plot_command},
      {"runs", runs_command},     {"sweep", sweep_command},     {"data", data_command},
      {"new", new_command},       {"help", help_command},       {"completion", completion_command}};
  if (context.request.command != "fit") ::signal(SIGUSR1, SIG_IGN);
  return commands.at(context.request.command)(context);
}

// A fit and a sweep run to their end whether or not their output is read.
bool trains(const ParsedCommandLine& parsed) {
  const Request& request = parsed.request;
  return parsed.exit_code < 0 && (request.command == "fit" || request.command == "sweep") && !request.check &&
         request.print_config.empty();
}

// Returns the exit code of the program for that of a command. Lost output is an error.
int code_with_output(int exit_code) {
  if (!has_reported_lost_output()) {
    if (const std::string text = lost_output_text(); !text.empty()) std::cerr << text << "\n";
  }
  return exit_code == 0 && !std::cout ? kFailureCode : exit_code;
}

// Words of a user in a message may have control characters, which a terminal would obey.
int say(int exit_code, std::string_view message) {
  std::cout << std::flush;
  std::size_t end = message.find('\n');
  for (; end != std::string_view::npos; end = message.find('\n')) {
    std::cerr << one_line(message.substr(0, end)) << "\n";
    message.remove_prefix(end + 1);
  }
  std::cerr << one_line(message) << "\n";
  return exit_code;
}

}  // namespace

int run_program(int argc, char** argv, const Registry& registry) {
  try {
    keep_freed_memory();
    forget_lost_output();
    const ParsedCommandLine parsed = parse_command_line(argc, argv, registry);
    if (!trains(parsed)) restore_output_signals();
    configure_log({.level = LogLevel::warning, .to_stderr = true, .file = {}});
    return code_with_output(
        parsed.exit_code >= 0
            ? parsed.exit_code
            : run({.request = parsed.request, .registry = registry, .argc = argc, .argv = argv}));
  } catch (const ConfigError& error) {
    return say(kConfigErrorCode, error.what());
  } catch (const DataError& error) {
    return say(kDataErrorCode, error.what());
  } catch (const std::exception& error) {
    return say(kFailureCode, error.what());
  }
}

int run_program(int argc, char** argv) {
  Registry registry;
  register_builtin(registry);
  return run_program(argc, argv, registry);
}

}  // namespace kindling
