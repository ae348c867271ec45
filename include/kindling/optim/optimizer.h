#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kindling/base/export.h"

namespace kindling {

// Updates parameters from their gradients. Parameters without a gradient are left alone, as in Python. Derive
// from it and write update() for an own rule. Neither step() nor a derived rule may read a tensor on the
// host.
class KINDLING_API Optimizer {
 public:
  // Parameters are float tensors on one device; throws ConfigError when there are none.
  Optimizer(std::vector<at::Tensor> parameters, double lr);
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // One update with the learning rate lr(); call it after backward().
  void step();
  // Drops the gradients (they become undefined tensors).
  void zero_grad();

  // The gradients of this step, of the parameters that have one. They may be changed in place before step().
  std::span<const at::Tensor> gradients();

  double lr() const noexcept { return lr_; }
  void set_lr(double lr) noexcept { lr_ = lr; }
  const std::vector<at::Tensor>& parameters() const noexcept { return parameters_; }

 protected:
  // `active` are the places in parameters() of those that have a gradient; the i-th gradient is
  // gradients()[i]. Runs without autograd.
  virtual void update(std::span<const std::size_t> active, at::TensorList gradients) = 0;

 private:
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> gradients_;
  std::vector<std::size_t> active_;
  double lr_;
};

// Makes the optimizer of a model once its parameters exist.
using OptimizerFactory = std::function<std::unique_ptr<Optimizer>(std::vector<at::Tensor> parameters)>;

}  // namespace kindling
