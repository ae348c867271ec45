#include "nn/untrained_tensors.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "kindling/base/log.h"
#include "nn/autograd_graph.h"
#include "tensors/shape_text.h"

namespace kindling {

std::vector<at::Tensor> leaves_of(const at::Tensor& loss) {
  std::vector<at::Tensor> leaves;
  for_each_graph_node(loss, [&](const torch::autograd::Node& node) {
    if (const auto* leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(&node))
      leaves.push_back(leaf->variable);
  });
  return leaves;
}

namespace {

constexpr std::size_t kMostNamed = 6;

void add_to(std::string& list, const std::string& item) { list += (list.empty() ? "" : ", ") + item; }

// "'head.weight', 'head.bias' and, not registered in the model, Float [3, 4]"
std::string list_tensors(const Module& model, const std::vector<at::Tensor>& tensors) {
  std::unordered_map<const at::TensorImpl*, const at::Tensor*> left;
  for (const at::Tensor& tensor : tensors) left[tensor.unsafeGetTensorImpl()] = &tensor;
  std::string registered, others;
  std::size_t num_named = 0;
  for (const auto& item : model.named_parameters())
    if (left.erase(item.value().unsafeGetTensorImpl()) > 0 && ++num_named <= kMostNamed)
      add_to(registered, "'" + item.key() + "'");
  for (const at::Tensor& tensor : tensors)
    if (left.contains(tensor.unsafeGetTensorImpl()) && ++num_named <= kMostNamed)
      add_to(others, type_text(tensor));
  if (num_named > kMostNamed)
    add_to(others.empty() ? registered : others, std::to_string(num_named - kMostNamed) + " more");
  if (others.empty()) return registered;
  return registered + (registered.empty() ? "" : " and ") +
         "tensors that are not registered in the model: " + others;
}

}  // namespace

void UntrainedTensors::note(const at::Tensor& loss, const Optimizer& optimizer) {
  if (has_reported_) return;
  noted_.clear();
  std::unordered_set<const at::TensorImpl*> trained;
  for (const at::Tensor& parameter : optimizer.parameters()) trained.insert(parameter.unsafeGetTensorImpl());
  for (const at::Tensor& leaf : leaves_of(loss))
    if (!trained.contains(leaf.unsafeGetTensorImpl()))
      noted_.push_back({c10::weak_intrusive_ptr<c10::TensorImpl>(leaf.getIntrusivePtr()), leaf._version()});
}

void UntrainedTensors::report(const Module& model) {
  std::vector<at::Tensor> untrained;
  for (const Leaf& leaf : std::exchange(noted_, {})) {
    auto impl = leaf.tensor.lock();
    if (!impl) continue;
    const at::Tensor tensor = at::Tensor::wrap_tensor_impl(std::move(impl));
    if (tensor.grad().defined() && tensor._version() == leaf.version) untrained.push_back(tensor);
  }
  if (untrained.empty()) return;
  has_reported_ = true;
  log_warning(model.name() + "::training_step computes gradients that no optimizer uses, of " +
              list_tensors(model, untrained) +
              ". They are not trained: register layers and parameters before the first step, and give the "
              "optimizer all of them; freeze() those that are to stay as they are");
}

}  // namespace kindling
