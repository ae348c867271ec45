#include "kindling/tensors/parameters.h"

#include <torch/nn/module.h>

#include "kindling/base/error.h"
#include "kindling/base/suggest.h"
#include "kindling/tensors/move.h"
#include "tensors/shape_text.h"
#include "tensors/state_fit.h"

namespace kindling {
namespace {

[[noreturn]] void refuse_name(const StateDict& own, const std::string& place, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& [known, tensor] : own.tensors) names.push_back(known);
  const std::string near = nearest(name, names);
  const bool is_long = names.size() > 20;
  throw Error({.place = place,
               .found = "the module has no parameter or buffer of this name" +
                        std::string(names.empty() ? ": it has none yet" : ""),
               .wanted = !near.empty()   ? "did you mean '" + near + "'?"
                         : names.empty() ? ""
                         : is_long       ? "one of the " + std::to_string(names.size()) + " in its state_dict"
                                         : "one of " + list_names(names)});
}

}  // namespace

at::Tensor get_parameter(const torch::nn::Module& module, const std::string& name) {
  const StateDict own = state_dict(module);
  const at::Tensor* tensor = own.find(name);
  if (tensor == nullptr) refuse_name(own, "get_parameter(\"" + name + "\")", name);
  return copy_to(tensor->detach(), cpu());
}

void set_parameter(torch::nn::Module& module, const std::string& name, const at::Tensor& values) {
  const std::string place = "set_parameter(\"" + name + "\")";
  LazyLayer* given_shape = nullptr;
  for (const auto& [weight, layer] : layers_without_shape(module)) {
    if (weight != name) continue;
    layer->materialize_like(values);
    given_shape = layer;
  }
  const StateDict own = state_dict(module);
  const at::Tensor* tensor = own.find(name);
  const bool fits = tensor != nullptr && tensor->sizes() == values.sizes();
  if (!fits && given_shape != nullptr) given_shape->dematerialize();
  if (tensor == nullptr && given_shape == nullptr) refuse_name(own, place, name);
  if (!fits)
    throw Error({.place = place,
                 .found = "the values have the shape " + shape_text(values),
                 .wanted = tensor == nullptr ? "a shape that its lazy layer accepts" : shape_text(*tensor)});
  write_values(*tensor, values);
}

}  // namespace kindling
