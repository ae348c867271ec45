#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <system_error>

#include "base/joined.h"
#include "cli/diff/differences.h"
#include "cli/run/weights.h"
#include "kindling/base/error.h"
#include "kindling/base/number_text.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxRows = 4;  // of tensors without a counterpart
constexpr std::string_view kModelPart = "model.", kOptimizerPart = "optimizer.";

// Orders tensors as model, optimizer, rest; files store them sorted by the width of their dtype.
StateDict in_order(StateDict state) {
  std::ranges::stable_sort(state.tensors, std::ranges::less{}, [](const auto& one) {
    return one.first.starts_with(kModelPart) ? 0 : one.first.starts_with(kOptimizerPart) ? 1 : 2;
  });
  return state;
}

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

}  // namespace

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

std::vector<PartDifference> differences_of_checkpoints(const fs::path& a, const fs::path& b,
                                                       const Tolerance& tolerance) {
  const auto in_a = step_files_of(a), in_b = step_files_of(b);
  std::map<std::int64_t, fs::path> all = in_a;
  all.insert(in_b.begin(), in_b.end());
  std::vector<PartDifference> differences;
  for (const auto& [step, _] : all) {
    const std::string part = "step " + std::to_string(step);
    if (auto alone = difference_of_presence(part, in_a.contains(step), in_b.contains(step)))
      differences.push_back(std::move(*alone));
    else
      differences.push_back(difference_of_files(part, in_a.at(step), in_b.at(step), tolerance));
  }
  return differences;
}

bool has_step_files(const fs::path& folder) { return !step_files_of(folder).empty(); }

}  // namespace kindling
