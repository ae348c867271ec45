#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty_like.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace kindling {

// Returns the identities of the gradients and their version counters.
inline std::vector<std::pair<const c10::TensorImpl*, std::uint32_t>> states_of_gradients(
    const std::vector<at::Tensor>& parameters) {
  std::vector<std::pair<const c10::TensorImpl*, std::uint32_t>> states;
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor& gradient = parameter.grad();
    states.emplace_back(gradient.unsafeGetTensorImpl(), gradient.defined() ? gradient._version() : 0);
  }
  return states;
}

// Adds gradients to those that parameters have; undefined ones are skipped. A parameter without a gradient
// takes the tensor itself if `may_keep(index)`, else a copy. Adds all at once, which needs fewer kernel
// launches on a device.
template <class MayKeep>
void add_gradients(std::span<const at::Tensor> gradients, const std::vector<at::Tensor>& parameters,
                   const MayKeep& may_keep) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> sums, addends, copies, originals;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    at::Tensor& gradient = parameters[i].mutable_grad();
    if (!gradients[i].defined()) continue;
    if (gradient.defined()) {
      sums.push_back(gradient);
      addends.push_back(gradients[i]);
    } else if (may_keep(i)) {
      gradient = gradients[i];
    } else {
      gradient = at::empty_like(gradients[i]);
      copies.push_back(gradient);
      originals.push_back(gradients[i]);
    }
  }
  if (!sums.empty()) at::_foreach_add_(sums, addends);
  if (!copies.empty()) at::_foreach_copy_(copies, originals);
}

// Sets the present gradients aside, so that the gradients of a batch are computed separately. The destructor
// restores them, with the new ones added if join() was called.
class GradientsApart {
 public:
  explicit GradientsApart(const std::vector<at::Tensor>& parameters) : parameters_(parameters) {
    for (const at::Tensor& parameter : parameters_)
      before_.push_back(std::exchange(parameter.mutable_grad(), {}));
  }
  ~GradientsApart() {
    for (std::size_t i = 0; i < before_.size(); ++i) parameters_[i].mutable_grad() = before_[i];
  }
  GradientsApart(const GradientsApart&) = delete;
  GradientsApart& operator=(const GradientsApart&) = delete;

  // Takes the new gradients; the parameters no longer have them.
  std::vector<at::Tensor> take() {
    std::vector<at::Tensor> made;
    for (const at::Tensor& parameter : parameters_)
      made.push_back(std::exchange(parameter.mutable_grad(), {}));
    return made;
  }
  // Returns the new gradients and adds them to those that were set aside.
  std::vector<at::Tensor> join() {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> made;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      at::Tensor& gradient = parameters_[i].mutable_grad();
      made.push_back(gradient);
      if (before_[i].defined() && gradient.defined())
        before_[i].add_(gradient);
      else if (gradient.defined())
        before_[i] = gradient;
    }
    return made;
  }

 private:
  const std::vector<at::Tensor>& parameters_;
  std::vector<at::Tensor> before_;
};

}  // namespace kindling
