#pragma once

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/optim.h>

#include <functional>
#include <memory>
#include <vector>

#include "kindling/device/device.h"
#include "kindling/optim/optimizer_factory.h"
#include "support/tensor_matchers.h"

namespace kindling {

// Two weights of a small problem that is not quadratic, and one that gets a gradient in every third step
// only, when `partial`; the same numbers every time.
struct OptimizerProblem {
  explicit OptimizerProblem(Device device, bool partial = false) : partial(partial) {
    parameters.push_back(at::linspace(-1, 1, 6).view({2, 3}).to(device).requires_grad_());
    parameters.push_back(at::linspace(0.5, -0.5, 3).to(device).requires_grad_());
    parameters.push_back(at::ones({2}, at::device(device)).requires_grad_());
    input = at::linspace(-2, 2, 8).view({4, 2}).to(device);
  }

  void backward(int step) const {
    at::Tensor loss = (at::matmul(input, parameters[0]) + parameters[1]).tanh().pow(2).sum();
    if (!partial || step % 3 == 1) loss = loss + parameters[2].pow(4).sum();
    loss.backward();
  }

  bool partial;
  std::vector<at::Tensor> parameters;
  at::Tensor input;
};

// Trains it with our optimizer on the device and with LibTorch's on the CPU, and compares the weights.
inline void expect_same_training(
    Device device, const OptimizerFactory& ours,
    const std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)>& theirs) {
  for (const bool partial : {false, true}) {
    OptimizerProblem problem(device, partial), expected(cpu(), partial);
    const auto optimizer = ours(problem.parameters);
    const auto reference = theirs(expected.parameters);
    for (int step = 0; step < 20; ++step) {
      optimizer->zero_grad();
      problem.backward(step);
      optimizer->step();
      reference->zero_grad();
      expected.backward(step);
      reference->step();
    }
    // The fused operators order the same float operations differently: a few last bits in 20 steps. The
    // middle column of the first weight oscillates, and with weight decay each step amplifies the different
    // rounding of a GPU.
    const double tolerance = device.is_cuda() ? 5e-4 : 5e-6;
    for (std::size_t i = 0; i < problem.parameters.size(); ++i)
      EXPECT_TRUE(close(problem.parameters[i], expected.parameters[i], tolerance))
          << i << " partial " << partial;
  }
}

}  // namespace kindling
