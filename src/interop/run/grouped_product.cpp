#include "interop/run/grouped_product.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mm.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "graph/recording/operator_recorder.h"

namespace kindling {
namespace {

constexpr const char* kOfTransformers = "torch.ops.transformers.grouped_mm_fallback.default";
constexpr const char* kOfAten = "torch.ops.aten._grouped_mm.default";

// Pieces and matrices are views of one operator each, so that their gradients are collected once.
at::Tensor grouped_product(const at::Tensor& rows, const at::Tensor& matrices, const at::Tensor& offsets) {
  OperatorRecorder::refuse(
      "the host reads the sizes of the groups of its experts; export the model with "
      "experts_implementation = \"batched_mm\" to capture its steps");
  const at::Tensor ends = offsets.to(at::kCPU);
  std::vector<std::int64_t> lengths;
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < ends.size(0); ++i) {
    const auto end = ends[i].item<std::int64_t>();
    lengths.push_back(end - begin);
    begin = end;
  }
  lengths.push_back(rows.size(0) - begin);
  const std::vector<at::Tensor> pieces = rows.split_with_sizes(lengths), experts = matrices.unbind(0);
  std::vector<at::Tensor> products;
  for (std::size_t i = 0; i < experts.size(); ++i)
    if (lengths[i] > 0) products.push_back(at::mm(pieces[i], experts[i]));
  if (lengths.back() > 0 || products.empty())
    products.push_back(rows.new_zeros({lengths.back(), matrices.size(2)}));
  return at::cat(products);
}

}  // namespace

bool is_grouped_product(const ProgramNode& node) {
  return node.target == kOfTransformers || node.target == kOfAten;
}

ProgramNode as_aten_grouped_product(ProgramNode node) {
  node.target = kOfAten;
  for (ProgramNode::Input& input : node.inputs) {
    if (input.name == "input") input.name = "self";
    if (input.name == "weight") input.name = "mat2";
  }
  return node;
}

void run_grouped_product(torch::jit::Stack& stack) {
  const at::Tensor rows = stack.at(0).toTensor(), matrices = stack.at(1).toTensor();
  TORCH_CHECK(rows.dim() == 2 && matrices.dim() == 3 && stack.at(2).isTensor() && stack.at(3).isNone() &&
                  stack.at(4).isNone(),
              "only products of rows [n, k] with matrices [experts, k, m] and offsets are supported, without "
              "a bias and another dtype");
  const at::Tensor offsets = stack.at(2).toTensor();
  TORCH_CHECK(offsets.dim() == 1 && offsets.size(0) == matrices.size(0), "there is one offset per matrix");
  at::Tensor product = grouped_product(rows, matrices, offsets);
  stack.clear();
  stack.emplace_back(std::move(product));
}

}  // namespace kindling
