#include "kindling/cli/program.h"

#include <unistd.h>

#include <cerrno>
#include <iostream>
#include <map>
#include <system_error>

#include "cli/commands/commands.h"
#include "cli/config/exit_codes.h"
#include "cli/run/host_memory.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"

namespace kindling {
namespace {

int run(const CommandContext& context) {
  static const std::map<std::string, int (*)(const CommandContext&)> commands{
      {"fit", fit_command},         {"validate", validate_command}, {"test", test_command},
      {"predict", predict_command}, {"devices", devices_command},   {"doctor", doctor_command},
      {"list", list_command},       {"bench", bench_command},       {"export", export_command},
      {"import", import_command},   {"diff", diff_command},         {"reference", reference_command}};
  return commands.at(context.request.command)(context);
}

// What a command has printed has arrived, or is an error.
void require_written_output() {
  if (std::cout.flush()) return;
  std::cout.clear();
  // Why that failed may be long gone; another write meets the same reason.
  const bool fails = ::write(STDOUT_FILENO, "\n", 1) < 0;
  throw Error({.place = "stdout",
               .found = "the output cannot be written: " +
                        (fails ? std::generic_category().message(errno) : "a part of it is lost"),
               .remedy = "make room, or write it elsewhere"});
}

int say(int exit_code, const char* text) {
  std::cout << std::flush;
  std::cerr << text << "\n";
  return exit_code;
}

}  // namespace

int run_program(int argc, char** argv, const Registry& registry) {
  try {
    keep_freed_memory();
    const ParsedCommandLine parsed = parse_command_line(argc, argv);
    configure_log({.level = LogLevel::warning, .to_stderr = true, .file = {}});
    const int exit_code =
        parsed.exit_code >= 0
            ? parsed.exit_code
            : run({.request = parsed.request, .registry = registry, .argc = argc, .argv = argv});
    require_written_output();
    return exit_code;
  } catch (const ConfigError& error) {
    return say(kConfigErrorCode, error.what());
  } catch (const DataError& error) {
    return say(kDataErrorCode, error.what());
  } catch (const std::exception& error) {
    return say(1, error.what());
  }
}

}  // namespace kindling
