#include "training/capture/batch_layout.h"

#include <algorithm>

namespace kindling {
namespace {

bool same_structure(const std::shared_ptr<const BatchStructure>& one,
                    const std::shared_ptr<const BatchStructure>& other) {
  if (one == other) return true;
  return one && other && one->kind == other->kind && one->names == other->names &&
         one->on_host == other->on_host &&
         std::ranges::equal(one->parts, other->parts,
                            [](const auto& a, const auto& b) { return same_structure(a, b); });
}

at::IntArrayRef strides_of(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided ? tensor.strides() : at::IntArrayRef();
}

}  // namespace

BatchLayout::BatchLayout(const Batch& batch) : structure_(batch.structure()) {
  for (const at::Tensor& tensor : batch.tensors())
    leaves_.push_back({tensor.sizes().vec(), strides_of(tensor).vec(), tensor.scalar_type(), tensor.device(),
                       tensor.layout(), tensor.requires_grad()});
}

bool BatchLayout::fits(const Batch& batch) const {
  return std::ranges::equal(leaves_, batch.tensors(),
                            [](const Leaf& leaf, const at::Tensor& tensor) {
                              return tensor.layout() == leaf.layout && tensor.sizes() == leaf.sizes &&
                                     strides_of(tensor) == leaf.strides &&
                                     tensor.scalar_type() == leaf.dtype && tensor.device() == leaf.device &&
                                     tensor.requires_grad() == leaf.requires_grad;
                            }) &&
         same_structure(structure_, batch.structure());
}

}  // namespace kindling
