#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "cli/config/command_line.h"
#include "kindling/launch/launch_environment.h"

// The run that the processes of a launch train: if one of them is lost and all are restarted, the next start
// resumes it.
namespace kindling {

using LaunchPlace = std::optional<LaunchEnvironment>;

// Returns the run of the previous start; empty if there was none or it had no run yet.
std::filesystem::path launched_run(const LaunchPlace& place);
// Records the run for the next start. Does nothing if there cannot be one.
void remember_run(const LaunchPlace& place, const std::filesystem::path& run);

// Returns the request of this start: that of the launch, or to resume the recorded run. A run without a
// checkpoint starts again in its directory, with its config.
struct StartRequest {
  Request request{};
  std::filesystem::path restarts_in{};  // empty: no restart
};
StartRequest request_of_start(const LaunchPlace& place, const Request& requested);

// "restart 2: process 1 of 2 was ended by signal 9 (Killed)"; empty for a first start.
std::string restart_text(const LaunchPlace& place);

}  // namespace kindling
