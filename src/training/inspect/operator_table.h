#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kindling {

// A call that a trace has noted.
struct TracedCall {
  std::string name;
  std::uint64_t thread = 0;
  std::int64_t start_ns = 0, duration_ns = 0;
  bool is_on_card = false;  // a kernel or a copy; not a call on the host
};

// All calls of one name.
struct OperatorRow {
  std::string name;
  std::int64_t num_calls = 0, own_ns = 0;
  bool is_on_card = false;
};

// The names by their own time, the longest first: the time of their calls without that of the calls inside
// them, on the same thread.
std::vector<OperatorRow> own_times(std::vector<TracedCall> calls);

// The first of these rows, for the eye.
std::string operator_table(const std::vector<OperatorRow>& rows);

}  // namespace kindling
