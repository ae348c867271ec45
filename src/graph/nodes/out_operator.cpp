#include "graph/nodes/out_operator.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace kindling {
namespace {

using Overloads = std::multimap<std::string, c10::OperatorHandle>;

// All overloads that write into given tensors, by name.
Overloads find_out_operators() {
  Overloads found;
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findOp(name);
    if (!op || !op->hasSchema()) continue;
    const auto& arguments = op->schema().arguments();
    if (arguments.empty() || !arguments.back().is_out()) continue;
    found.emplace(name.name, *op);
  }
  return found;
}

bool writes_results_of(const c10::OperatorHandle& out, const c10::FunctionSchema& schema) {
  const auto &given = out.schema().arguments(), &arguments = schema.arguments();
  if (given.size() != arguments.size() + schema.returns().size()) return false;
  const auto is_same = [](const c10::Argument& one, const c10::Argument& other) {
    return one.name() == other.name() && *one.type() == *other.type();
  };
  const auto first_out = given.begin() + static_cast<std::ptrdiff_t>(arguments.size());
  return std::equal(arguments.begin(), arguments.end(), given.begin(), is_same) &&
         std::all_of(first_out, given.end(), [](const c10::Argument& argument) { return argument.is_out(); });
}

}  // namespace

// Overloads without a dedicated kernel create the results and copy them.
std::optional<c10::OperatorHandle> out_operator(const c10::OperatorHandle& op) {
  static const Overloads all = find_out_operators();
  const auto [first, last] = all.equal_range(op.schema().name());
  const auto found = std::find_if(first, last, [&](const auto& overload) {
    return overload.second.hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
           writes_results_of(overload.second, op.schema());
  });
  return found == last ? std::nullopt : std::optional(found->second);
}

}  // namespace kindling
