#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <string>

#include "cli/commands/commands.h"
#include "kindling/loggers/terminal.h"
#include "runs/run_list.h"

namespace kindling {

int runs_command(const CommandContext& context) {
  const RunsRequest& request = context.request.runs;
  RunList list = list_runs(request.dir, request.filter);
  const auto best =
      std::ranges::find_if(list.runs, [](const auto& run) { return run.record.best_value.has_value(); });
  std::string mode = request.mode;
  if (mode.empty() && best != list.runs.end()) mode = best->record.best_mode;
  if (mode.empty())
    mode = best == list.runs.end() || is_higher_better(best->record.best_name) ? "max" : "min";
  sort_runs(list.runs, request.sort, mode == "max");
  constexpr std::size_t kWidthOfFiles = 160;
  const std::size_t width =
      is_terminal(STDOUT_FILENO) ? static_cast<std::size_t>(terminal_width(STDOUT_FILENO)) : kWidthOfFiles;
  std::cout << (context.request.json ? json_of_runs(list) : table_of_runs(list, width));
  return 0;
}

}  // namespace kindling
