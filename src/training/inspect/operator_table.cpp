#include "training/inspect/operator_table.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "kindling/base/number_text.h"
#include "kindling/base/text.h"

namespace kindling {
namespace {

constexpr std::size_t kNumRows = 25;

std::int64_t end_of(const TracedCall& call) { return call.start_ns + call.duration_ns; }

// Returns the self time of each call, without nested calls. `calls` are ordered by start on each thread.
std::vector<std::int64_t> own_ns(const std::vector<TracedCall>& calls) {
  std::vector<std::int64_t> own;
  std::vector<std::size_t> around;  // the enclosing calls, the outermost first
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const TracedCall& call = calls[i];
    own.push_back(call.duration_ns);
    if (call.is_on_card) continue;
    while (!around.empty() &&
           (calls[around.back()].thread != call.thread || end_of(calls[around.back()]) <= call.start_ns))
      around.pop_back();
    if (!around.empty()) own[around.back()] -= call.duration_ns;
    around.push_back(i);
  }
  return own;
}

}  // namespace

std::vector<OperatorRow> own_times(std::vector<TracedCall> calls) {
  std::ranges::stable_sort(calls, {}, [](const TracedCall& call) {
    return std::tuple(call.is_on_card, call.thread, call.start_ns, -call.duration_ns);
  });
  const std::vector<std::int64_t> own = own_ns(calls);
  std::map<std::pair<std::string, bool>, OperatorRow> by_name;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    OperatorRow& row = by_name[{calls[i].name, calls[i].is_on_card}];
    row.name = calls[i].name;
    row.is_on_card = calls[i].is_on_card;
    ++row.num_calls;
    row.own_ns += own[i];
  }
  std::vector<OperatorRow> rows;
  for (auto& [name, row] : by_name) rows.push_back(std::move(row));
  std::ranges::stable_sort(rows, std::greater(), &OperatorRow::own_ns);
  return rows;
}

std::string operator_table(const std::vector<OperatorRow>& rows) {
  std::int64_t total[2] = {1, 1};  // host, device
  for (const OperatorRow& row : rows) total[row.is_on_card] += row.own_ns;
  std::vector<std::vector<std::string>> lines;
  for (std::size_t i = 0; i < std::min(rows.size(), kNumRows); ++i) {
    const OperatorRow& row = rows[i];
    const double share = static_cast<double>(row.own_ns) / static_cast<double>(total[row.is_on_card]);
    lines.push_back({row.name, row.is_on_card ? "device" : "host", std::to_string(row.num_calls),
                     fixed_text(static_cast<double>(row.own_ns) * 1e-6, 3), fixed_text(100 * share, 1)});
  }
  return table_text({{.title = "operator"},
                     {.title = "on"},
                     {.title = "calls", .right = true},
                     {.title = "self time, ms", .right = true},
                     {.title = "share, %", .right = true}},
                    lines);
}

}  // namespace kindling
