#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kindling {

// A call recorded by a trace.
struct TracedCall {
  std::string name;
  std::uint64_t thread = 0;
  std::int64_t start_ns = 0, duration_ns = 0;
  bool is_on_card = false;  // a kernel or a copy; not a call on the host
};

// All calls of one operator.
struct OperatorRow {
  std::string name;
  std::int64_t num_calls = 0, own_ns = 0;
  bool is_on_card = false;
};

// Returns the operators sorted by self time, the longest first. Self time excludes calls nested on the same
// thread.
std::vector<OperatorRow> own_times(std::vector<TracedCall> calls);

// Returns the first rows as a text table.
std::string operator_table(const std::vector<OperatorRow>& rows);

}  // namespace kindling
