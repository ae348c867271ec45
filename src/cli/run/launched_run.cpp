#include "cli/run/launched_run.h"

#include "cli/run/resume_plan.h"
#include "kindling/base/file.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

// In the directory of a launch by this program, which all its starts share; empty for other launchers.
fs::path note_of(const LaunchPlace& place) {
  return place && !place->store_file.empty() ? place->store_file.parent_path() / "run" : fs::path{};
}

}  // namespace

fs::path launched_run(const LaunchPlace& place) {
  const fs::path note = note_of(place);
  constexpr std::size_t kMaxBytes = 1 << 16;
  return note.empty() || !fs::exists(note) ? fs::path{} : fs::path(read_file(note, kMaxBytes));
}

void remember_run(const LaunchPlace& place, const fs::path& run) {
  if (const fs::path note = note_of(place); !note.empty())
    write_file_atomically(note, fs::absolute(run).string());
}

StartRequest request_of_start(const LaunchPlace& place, const Request& requested) {
  StartRequest start{.request = requested};
  const fs::path run = place && place->restart_count > 0 ? launched_run(place) : fs::path{};
  if (run.empty()) return start;
  if (has_checkpoints(run)) {
    start.request.configs.clear();
    start.request.resume = run;
  } else {
    start.restarts_in = run;
    if (const fs::path config = run / "config.toml"; fs::exists(config)) start.request.configs = {config};
  }
  return start;
}

std::string restart_text(const LaunchPlace& place) {
  if (!place || place->restart_count == 0) return {};
  return "restart " + std::to_string(place->restart_count) +
         (place->restart_reason.empty() ? "" : ", because " + place->restart_reason);
}

}  // namespace kindling
