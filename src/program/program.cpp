#include "kindling/program/program.h"

#include <iostream>
#include <map>

#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "program/commands.h"

namespace kindling {
namespace {

int run(const CommandContext& context) {
  static const std::map<std::string, int (*)(const CommandContext&)> commands{
      {"fit", fit_command},         {"validate", validate_command}, {"test", test_command},
      {"predict", predict_command}, {"devices", devices_command},   {"doctor", doctor_command},
      {"list", list_command},       {"bench", bench_command}};
  return commands.at(context.request.command)(context);
}

int say(int exit_code, const char* text) {
  std::cout << std::flush;
  std::cerr << text << "\n";
  return exit_code;
}

}  // namespace

int run_program(int argc, char** argv, const Registry& registry) {
  try {
    const ParsedCommandLine parsed = parse_command_line(argc, argv);
    if (parsed.exit_code >= 0) return parsed.exit_code;
    configure_log({.level = LogLevel::warning, .to_stderr = true, .file = {}});
    return run({.request = parsed.request, .registry = registry, .argc = argc, .argv = argv});
  } catch (const ConfigError& error) {
    return say(2, error.what());
  } catch (const DataError& error) {
    return say(3, error.what());
  } catch (const std::exception& error) {
    return say(1, error.what());
  }
}

}  // namespace kindling
