#include <algorithm>
#include <iostream>
#include <tuple>

#include "base/joined.h"
#include "cli/commands/commands.h"
#include "cli/config/config_change.h"
#include "cli/diff/differences.h"
#include "cli/run/resume_plan.h"
#include "cli/run/weights.h"
#include "kindling/base/error.h"
#include "kindling/tensors/state_dict.h"
#include "loggers/run_claim.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

// A run directory, a similar directory written by Python, or a file of tensors.
class Side {
 public:
  explicit Side(fs::path path) : path_(std::move(path)), is_folder_(fs::is_directory(path_)) {
    if (!fs::exists(path_)) refuse("no such file or directory");
    if (!is_folder_ || has_parts()) return;
    path_ = newest_run(path_);
    if (!has_parts()) refuse("not a run directory");
  }

  const fs::path& path() const { return path_; }
  bool is_folder() const { return is_folder_; }
  fs::path file(const char* name) const { return path_ / name; }
  bool has(const char* name) const { return is_folder_ && fs::exists(file(name)); }
  fs::path checkpoints() const {
    return fs::is_directory(checkpoints_of(path_)) ? checkpoints_of(path_) : path_;
  }

 private:
  // Of a directory such as runs/digits; a run of another program may have records or weights only.
  static fs::path newest_run(const fs::path& folder) {
    const fs::path run = run_at(folder);
    if (run != folder) return run;
    return newest_run_with(folder, {"metrics.jsonl", "weights.safetensors"}).value_or(folder);
  }
  bool has_parts() const {
    return has("config.toml") || has("metrics.jsonl") || has("weights.safetensors") ||
           has_step_files(checkpoints());
  }
  [[noreturn]] void refuse(const char* found) const {
    throw ConfigError({.place = path_.string(),
                       .found = found,
                       .wanted = "a run directory, a checkpoint, or a weights file",
                       .remedy = "for example runs/digits/0001"});
  }

  fs::path path_;
  bool is_folder_;
};

using Differences = std::vector<PartDifference>;

PartDifference difference_of_configs(const fs::path& a, const fs::path& b, const Registry& registry) {
  const RunConfig was(ConfigDocument::load(a), registry, ""), now(ConfigDocument::load(b), registry, "");
  PartDifference difference{.part = "config", .columns = {{.title = "key"}, {.title = "A"}, {.title = "B"}}};
  for (const ConfigChange& change : changes_between(was, now))
    if (change.key != "run.dir" && change.key != "name")  // the location of the run
      difference.rows.push_back({change.key, change.was, change.now});
  difference.is_equal = difference.rows.empty();
  difference.summary = difference.is_equal ? "equal, " + counted(was.values().size(), "key")
                                           : counted(difference.rows.size(), "key") +
                                                 (difference.rows.size() == 1 ? " differs" : " differ");
  return difference;
}

// Prints which side lacks the file; a missing file does not count as a difference.
bool both_have(const Side& a, const Side& b, const char* name) {
  if (a.has(name) == b.has(name)) return a.has(name);
  std::cout << "not compared: " << (a.has(name) ? b : a).path().string() << " has no " << name << "\n";
  return false;
}

Differences compare_runs(const Side& a, const Side& b, const CommandContext& context) {
  const Tolerance& tolerance = context.request.diff.tolerance;
  Differences all;
  if (both_have(a, b, "config.toml"))
    all.push_back(difference_of_configs(a.file("config.toml"), b.file("config.toml"), context.registry));
  if (both_have(a, b, "metrics.jsonl"))
    all.push_back(difference_of_metrics(a.file("metrics.jsonl"), b.file("metrics.jsonl"), tolerance));
  if (has_step_files(a.checkpoints()) && has_step_files(b.checkpoints()))
    std::ranges::move(differences_of_checkpoints(a.checkpoints(), b.checkpoints(), tolerance),
                      std::back_inserter(all));
  if (both_have(a, b, "weights.safetensors"))
    all.push_back(difference_of_states("weights", load_safetensors(a.file("weights.safetensors")),
                                       load_safetensors(b.file("weights.safetensors")), tolerance));
  return all;
}

Differences compare_sides(const Side& a, const Side& b, const CommandContext& context) {
  if (a.is_folder() && b.is_folder()) return compare_runs(a, b, context);
  const bool is_whole =
      !a.is_folder() && !b.is_folder() && is_checkpoint(a.path()) && is_checkpoint(b.path());
  const auto state = [&](const Side& side) {
    return is_whole ? load_state_file(side.path()) : weights_from(side.path());
  };
  return {difference_of_states(is_whole ? "checkpoint" : "weights", state(a), state(b),
                               context.request.diff.tolerance)};
}

void print(const Differences& all) {
  std::size_t width = 0;
  for (const PartDifference& one : all) width = std::max(width, one.part.size());
  const std::string indent(width + 3, ' ');
  for (const PartDifference& one : all) {
    std::cout << padded(one.part, width) << "   " << one.summary << "\n";
    if (one.rows.empty()) continue;
    const std::string table = table_text(one.columns, one.rows);
    for (std::size_t begin = 0, end = 0; begin < table.size(); begin = end) {
      end = table.find('\n', begin) + 1;
      std::cout << indent << std::string_view(table).substr(begin, end - begin);
    }
  }
}

}  // namespace

int diff_command(const CommandContext& context) try {
  const auto& [in_a, in_b, tolerance] = context.request.diff;
  const Side a(in_a), b(in_b);
  const Differences all = compare_sides(a, b, context);
  if (all.empty())
    throw ConfigError({.place = in_a.string() + ", " + in_b.string(),
                       .found = "they have nothing in common to compare",
                       .wanted = "configs, metrics, checkpoints or weights in both"});
  for (const auto& [name, side, given] : {std::tuple("A", &a, &in_a), {"B", &b, &in_b}})
    if (side->path() != *given) std::cout << name << "   " << side->path().string() << "\n";
  print(all);
  return std::ranges::all_of(all, &PartDifference::is_equal) ? 0 : 1;
} catch (const ConfigError&) {
  throw;
} catch (const Error& error) {
  throw ConfigError({.found = error.what()});  // exit code 1 would mean that they differ
}

}  // namespace kindling
