#include "nn/repeated_uses.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "kindling/base/log.h"
#include "nn/autograd_graph.h"

namespace kindling {
namespace {

using GraphNode = torch::autograd::Node;

// A sum of so many bfloat16 numbers may be off by 2 %; after 256 equal ones it does not grow any more.
constexpr std::int64_t kMostUses = 128;

// Nodes whose gradient is zero except for the part that they have taken: such gradients do not add up.
bool takes_part(const GraphNode& node) {
  constexpr std::array<std::string_view, 5> kTaking = {"Select", "Slice", "Split", "Unbind", "Narrow"};
  const std::string name = node.name();
  return std::ranges::any_of(kTaking, [&](std::string_view start) { return name.starts_with(start); });
}

bool adds_up_in_16_bits(const GraphNode& node) {
  return node.num_inputs() == 1 &&
         at::isReducedFloatingType(c10::typeMetaToScalarType(node.input_metadata(0).dtype()));
}

struct UsedNode {
  const GraphNode* node = nullptr;
  std::int64_t num_uses = 0;
};

// Nodes with several results are left out: their results have gradients of their own.
UsedNode most_used(const at::Tensor& loss) {
  UsedNode most;
  std::unordered_map<const GraphNode*, std::int64_t> num_uses;
  for_each_graph_node(loss, [&](const GraphNode& node) {
    if (takes_part(node)) return;
    for (const auto& edge : node.next_edges()) {
      const GraphNode* const used = edge.function.get();
      if (used == nullptr || !adds_up_in_16_bits(*used)) continue;
      if (const std::int64_t uses = ++num_uses[used]; uses > most.num_uses) most = {used, uses};
    }
  });
  return most;
}

std::string name_of(const GraphNode& node, const Module& model) {
  const auto* leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(&node);
  if (leaf == nullptr) return "a result of " + node.name();
  for (const auto& item : model.named_parameters())
    if (item.value().is_same(leaf->variable)) return "the parameter '" + item.key() + "'";
  return "a tensor that is not registered in the model";
}

}  // namespace

bool warn_of_repeated_uses(const at::Tensor& loss, const Module& model) {
  const UsedNode most = most_used(loss);
  if (most.num_uses <= kMostUses) return false;
  log_warning(model.name() + "::training_step uses " + name_of(*most.node, model) + " " +
              std::to_string(most.num_uses) +
              " times in a step, and autograd adds up the gradients of these uses in 16 bits, in which a sum "
              "of more than a few hundred numbers loses terms; use precision = \"bf16-mixed\" for 16-bit "
              "weights, or tensor.to(torch::kFloat) for a result before its uses");
  return true;
}

}  // namespace kindling
