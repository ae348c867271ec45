#include "kindling/nn/layer_summary.h"

#include <ATen/core/grad_mode.h>
#include <torch/nn/modules/container/sequential.h>

#include <map>

namespace kindling {
namespace {

// "kindling::LazyLinearImpl" → "Linear": by now the layer knows its input size.
std::string short_type(std::string name) {
  if (const auto colon = name.rfind("::"); colon != std::string::npos) name.erase(0, colon + 2);
  if (name.ends_with("Impl")) name.resize(name.size() - 4);
  if (name.starts_with("Lazy")) name.erase(0, 4);
  return name;
}

struct Shapes {
  std::vector<std::int64_t> input, output;
};

// By the name of the layer; empty unless the model is a Sequential with a name.
std::map<std::string, Shapes> shapes_of(Module& model, const at::Tensor& input) {
  std::map<std::string, Shapes> shapes;
  const auto children = model.named_children();
  if (children.size() != 1) return shapes;
  auto* sequential = children[0].value()->as<torch::nn::SequentialImpl>();
  if (sequential == nullptr) return shapes;
  at::Tensor value = input;
  std::size_t index = 0;
  for (auto& layer : *sequential) {
    const at::Tensor output = layer.forward(value);
    shapes[children[0].key() + "." + std::to_string(index++)] = {value.sizes().vec(), output.sizes().vec()};
    value = output;
  }
  return shapes;
}

}  // namespace

std::vector<LayerRow> layer_summary(Module& model, const Batch& batch) {
  const at::NoGradGuard no_grad;
  const bool was_training = model.is_training();
  model.eval();
  model.forward_inputs(batch);
  const auto shapes = shapes_of(model, batch.tensors().front());
  model.train(was_training);

  std::vector<LayerRow> rows;
  for (const auto& item : model.named_modules()) {
    LayerRow row{
        .name = item.key(), .type = short_type(item.value()->name()), .input_shape = {}, .output_shape = {}};
    for (const auto& parameter : item.value()->parameters(/*recurse=*/false))
      row.num_parameters += parameter.numel();
    if (row.num_parameters == 0) continue;
    if (const auto found = shapes.find(row.name); found != shapes.end()) {
      row.input_shape = found->second.input;
      row.output_shape = found->second.output;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace kindling
