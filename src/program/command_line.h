#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace kindling {

// What was asked for on the command line.
struct Request {
  std::string command{};  // fit, validate, test, predict, devices, doctor, list
  std::vector<std::filesystem::path> configs{};
  std::vector<std::string> overrides{};  // "trainer.max_epochs=3", in their order
  std::filesystem::path weights{};       // of --weights: a run's folder or a file
  std::string listed{};                  // models, datasets, optimizers, schedules
  std::string color = "auto";
  std::string progress = "auto";
  bool quiet = false;
  bool print_config = false;
  bool check = false;
  bool json = false;
};

struct ParsedCommandLine {
  Request request{};
  // Set when there is nothing left to do (--help, a usage error): the exit code; what was to be said has been
  // printed.
  int exit_code = -1;
};

// Overrides are words with a '=' that do not start with '-', and options whose name holds a '.'
// (`--trainer.max_epochs 3`) or is `seed` or `name`, before or after the subcommand.
ParsedCommandLine parse_command_line(int argc, char** argv);

}  // namespace kindling
