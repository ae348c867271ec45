#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <cstddef>
#include <utility>
#include <vector>

namespace kindling {

// Sets the present gradients aside, so that the gradients of a batch are computed separately. The parameters
// outlive it. The destructor
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
