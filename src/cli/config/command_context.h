#pragma once

#include "cli/config/command_line.h"
#include "kindling/cli/registry.h"

namespace kindling {

// The arguments of a subcommand. Both references outlive the call.
struct CommandContext {
  const Request& request;
  const Registry& registry;
  int argc;
  char** argv;
};

}  // namespace kindling
