#pragma once

#include <string>

#include "cli/config/command_line.h"

namespace kindling {

// One function per subcommand; each returns the exit code and throws kindling::Error for what cannot be done.
int fit_command(const CommandContext& context);
int config_command(const CommandContext& context);
int validate_command(const CommandContext& context);
int test_command(const CommandContext& context);
int predict_command(const CommandContext& context);
int plot_command(const CommandContext& context);
int export_command(const CommandContext& context);
int import_command(const CommandContext& context);
int diff_command(const CommandContext& context);
int replay_command(const CommandContext& context);
int blame_command(const CommandContext& context);
int runs_command(const CommandContext& context);
int sweep_command(const CommandContext& context);
int new_command(const CommandContext& context);
int data_command(const CommandContext& context);
int devices_command(const CommandContext& context);
int bench_command(const CommandContext& context);
int doctor_command(const CommandContext& context);
int list_command(const CommandContext& context);
int help_command(const CommandContext& context);
int completion_command(const CommandContext& context);

struct DynamicSize;
// Parses a word of `export --dynamic`, "sequence=0:1,1:1,max=1024": a name, the positions of the size
// (tensor:dimension), and its bounds. Throws ConfigError.
DynamicSize dynamic_size_of(const std::string& word);

}  // namespace kindling
