#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "cli/config/command_line.h"
#include "kindling/launch/launch_environment.h"

// The run that processes of a launch are at work on: where one of them is lost and all are started anew, the
// next start goes on with it.
namespace kindling {

using LaunchPlace = std::optional<LaunchEnvironment>;

// What the start before was at work on; empty: there was none, or it had not come so far.
std::filesystem::path launched_run(const LaunchPlace& place);
// For the next start; nothing happens where there will be none.
void remember_run(const LaunchPlace& place, const std::filesystem::path& run);

// What is asked of this start: what was asked of the launch, or to go on with that run. One that has no
// checkpoint yet begins again, in its folder, by the config that it has.
struct StartRequest {
  Request request{};
  std::filesystem::path restarts_in{};  // empty: it does not
};
StartRequest request_of_start(const LaunchPlace& place, const Request& requested);

// "restart 2: process 1 of 2 was ended by signal 9 (Killed)"; empty for a first start.
std::string restart_text(const LaunchPlace& place);

}  // namespace kindling
