#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <unordered_set>
#include <vector>

namespace kindling {

// Calls `visit` once with each node of the graph that a backward of this loss would run. Calls no operator.
template <class Visit>
void for_each_graph_node(const at::Tensor& loss, const Visit& visit) {
  using GraphNode = torch::autograd::Node;
  std::vector<const GraphNode*> to_visit;
  std::unordered_set<const GraphNode*> seen;
  const auto add = [&](const GraphNode* node) {
    if (node != nullptr && seen.insert(node).second) to_visit.push_back(node);
  };
  add(torch::autograd::impl::gradient_edge(loss).function.get());
  while (!to_visit.empty()) {
    const GraphNode* const node = to_visit.back();
    to_visit.pop_back();
    visit(*node);
    for (const auto& edge : node->next_edges()) add(edge.function.get());
  }
}

}  // namespace kindling
