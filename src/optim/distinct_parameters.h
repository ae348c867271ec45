#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace kindling {

// The parameters with their names: a tensor that is registered twice, as tied weights are, once and under its
// first name, as in Python.
std::vector<std::pair<std::string, at::Tensor>> distinct_parameters(const torch::nn::Module& model);

}  // namespace kindling
