#pragma once

#include <torch/nn/module.h>

#include <string>

namespace kindling {

// Calls visit(name, module) for the module itself, under an empty name, and then for all within it. Unlike
// named_modules() it takes a module that no shared_ptr owns, such as one on the stack.
template <class Visit>
void for_each_module(torch::nn::Module& module, const Visit& visit) {
  visit(std::string(), module);
  for (const auto& item : module.named_modules("", /*include_self=*/false)) visit(item.key(), *item.value());
}

}  // namespace kindling
