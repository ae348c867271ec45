#pragma once

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <string>

#include "kindling/tensors/state_dict.h"
#include "support/tensor_matchers.h"

namespace kindling {

// Compares the sums of all tensors of a model and of their magnitudes with those of Python.
inline void expect_sums(const StateDict& python, const std::string& prefix, const torch::nn::Module& model,
                        double tolerance) {
  std::size_t expected = 0;
  for (const auto& item : python.tensors) expected += item.first.starts_with(prefix) ? 1 : 0;
  const StateDict state = state_dict(model);
  EXPECT_EQ(state.tensors.size(), expected);
  for (const auto& [name, tensor] : state.tensors) {
    ASSERT_NE(python.find(prefix + name), nullptr) << name;
    const at::Tensor values = tensor.detach().to(at::kDouble);
    EXPECT_TRUE(close(at::stack({values.sum(), values.abs().sum()}), *python.find(prefix + name), tolerance))
        << prefix << name;
  }
}

}  // namespace kindling
