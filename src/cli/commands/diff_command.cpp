#include <algorithm>
#include <charconv>
#include <iostream>
#include <map>
#include <optional>
#include <system_error>
#include <tuple>

#include "base/joined.h"
#include "cli/commands/commands.h"
#include "cli/run/resume_plan.h"
#include "cli/run/weights.h"
#include "kindling/base/error.h"
#include "kindling/base/number_text.h"
#include "kindling/tensors/state_comparison.h"
#include "kindling/tensors/state_dict.h"
#include "runs/metrics_difference.h"
#include "runs/run_folder.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxRows = 4;  // of tensors without a counterpart
constexpr std::string_view kModelPart = "model.", kOptimizerPart = "optimizer.";

std::map<std::int64_t, fs::path> step_files_of(const fs::path& folder) {
  std::map<std::int64_t, fs::path> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    constexpr std::string_view kStart = "step-", kEnd = ".safetensors";
    if (!name.starts_with(kStart) || !name.ends_with(kEnd)) continue;
    std::int64_t step = -1;
    const char* const end = name.data() + name.size() - kEnd.size();
    if (std::from_chars(name.data() + kStart.size(), end, step).ptr == end && step >= 0)
      files[step] = entry.path();
  }
  return files;
}

bool has_step_files(const fs::path& folder) { return !step_files_of(folder).empty(); }

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

// Orders tensors as model, optimizer, rest; files store them sorted by the width of their dtype.
StateDict in_order(StateDict state) {
  std::ranges::stable_sort(state.tensors, std::ranges::less{}, [](const auto& one) {
    return one.first.starts_with(kModelPart) ? 0 : one.first.starts_with(kOptimizerPart) ? 1 : 2;
  });
  return state;
}

using Row = std::vector<std::string>;

Row row_of(const StateComparison::Difference& difference, const StateDict& state) {
  const std::int64_t size = state.find(difference.name)->numel();
  return {one_line(difference.name), std::to_string(difference.num_different) + " of " + std::to_string(size),
          short_text(difference.max_absolute, 3), short_text(difference.max_relative, 3)};
}

void add_names(std::vector<Row>& rows, const std::vector<std::string>& names, const std::string& found) {
  for (const std::string& name : names) rows.push_back({one_line(name), found, "", ""});
}

// Tensors that only one state has, or whose shapes or dtypes differ.
std::vector<Row> mismatched_rows(const StateComparison& comparison) {
  std::vector<Row> rows;
  for (const auto& [name, in_a, in_b] : comparison.misfits)
    rows.push_back({one_line(name), in_a + " in A, " + in_b + " in B", "", ""});
  add_names(rows, comparison.only_in_a, "only in A");
  add_names(rows, comparison.only_in_b, "only in B");
  const std::size_t count = rows.size();
  if (count > kMaxRows) {
    rows.resize(kMaxRows);
    rows.push_back({"and " + std::to_string(count - kMaxRows) + " more", "", "", ""});
  }
  return rows;
}

// Returns the first tensor in which two states differ, and how many do: first those of the model, then those
// of the optimizer, then the rest.
PartDifference difference_of_states(const std::string& part, const StateDict& first, const StateDict& second,
                                    const Tolerance& tolerance) {
  const StateDict a = in_order(first), b = in_order(second);
  const StateComparison comparison = compare(a, b, tolerance);
  const auto differs = [](const StateComparison::Difference& one) { return one.num_different > 0; };
  const auto count = static_cast<std::size_t>(std::ranges::count_if(comparison.differences, differs));
  PartDifference difference{
      .part = part,
      .columns = {
          {.title = "tensor"}, {.title = "elements"}, {.title = "max |A - B|"}, {.title = "relative"}}};
  difference.rows = mismatched_rows(comparison);
  difference.is_equal = count == 0 && difference.rows.empty();
  const std::string compared = counted(comparison.differences.size(), "tensor");
  const std::size_t misfits =
      comparison.misfits.size() + comparison.only_in_a.size() + comparison.only_in_b.size();
  difference.summary =
      difference.is_equal ? "equal, " + compared : std::to_string(count) + " of " + compared + " different";
  if (misfits > 0) difference.summary += ", " + std::to_string(misfits) + " without a counterpart";
  if (count > 1) difference.summary += ", the first:";
  if (count > 0)
    difference.rows.insert(difference.rows.begin(),
                           row_of(*std::ranges::find_if(comparison.differences, differs), a));
  return difference;
}

std::optional<PartDifference> difference_of_presence(const std::string& part, bool in_a, bool in_b) {
  if (in_a && in_b) return std::nullopt;
  return PartDifference{.part = part, .is_equal = false, .summary = in_a ? "only in A" : "only in B"};
}

PartDifference difference_of_files(const std::string& part, const fs::path& a, const fs::path& b,
                                   const Tolerance& tolerance) try {
  const bool is_whole = is_checkpoint(a) && is_checkpoint(b);
  const auto state = [&](const fs::path& file) {
    return is_whole ? load_state_file(file) : weights_from(file);
  };
  return difference_of_states(part, state(a), state(b), tolerance);
} catch (const CheckpointError& error) {
  return {.part = part, .is_equal = false, .summary = error.what()};
}

using Differences = std::vector<PartDifference>;

// Compares two directories of checkpoints step by step. If one file of a step is not a checkpoint, such as
// weights written by Python to step-00000020.safetensors, compares only the model. An unreadable file counts
// as a difference.
Differences differences_of_checkpoints(const fs::path& a, const fs::path& b, const Tolerance& tolerance) {
  const auto in_a = step_files_of(a), in_b = step_files_of(b);
  std::map<std::int64_t, fs::path> all = in_a;
  all.insert(in_b.begin(), in_b.end());
  Differences differences;
  for (const auto& [step, _] : all) {
    const std::string part = "step " + std::to_string(step);
    if (auto alone = difference_of_presence(part, in_a.contains(step), in_b.contains(step)))
      differences.push_back(std::move(*alone));
    else
      differences.push_back(difference_of_files(part, in_a.at(step), in_b.at(step), tolerance));
  }
  return differences;
}

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
    all.push_back(difference_of_metrics(a.file("metrics.jsonl"), b.file("metrics.jsonl"),
                                        {.relative = tolerance.relative, .absolute = tolerance.absolute}));
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
