#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace kindling {

// Returns the parameters with their names. A tensor that is registered twice, such as tied weights, appears
// once under its first name, as in Python.
std::vector<std::pair<std::string, at::Tensor>> distinct_parameters(const torch::nn::Module& model);

}  // namespace kindling
