#pragma once

#include "cli/config/command_context.h"

namespace kindling {

// One function per subcommand; each returns the exit code and throws kindling::Error for what cannot be done.
int fit_command(const CommandContext& context);
int validate_command(const CommandContext& context);
int test_command(const CommandContext& context);
int predict_command(const CommandContext& context);
int plot_command(const CommandContext& context);
int export_command(const CommandContext& context);
int import_command(const CommandContext& context);
int diff_command(const CommandContext& context);
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
int reference_command(const CommandContext& context);

}  // namespace kindling
