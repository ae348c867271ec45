#include "kindling/nn/layer_summary.h"

#include <torch/nn/modules/container/sequential.h>

#include <map>

#include "kindling/nn/evaluation_guard.h"
#include "nn/layer_name.h"
#include "tensors/module_tree.h"

namespace kindling {
namespace {

struct Shapes {
  std::vector<std::int64_t> input, output;
};
using ShapesByName = std::map<std::string, Shapes>;

// By the names of the layers; empty unless the model's one child is a Sequential, whose layers are run one by
// one.
ShapesByName shapes_of(Module& model, const at::Tensor& input) {
  ShapesByName shapes;
  const auto children = model.named_children();
  if (children.size() != 1) return shapes;
  auto* sequential = children[0].value()->as<torch::nn::SequentialImpl>();
  if (sequential == nullptr) return shapes;
  at::Tensor value = input;
  auto layer = sequential->begin();
  for (const auto& child : sequential->named_children()) {
    const at::Tensor output = (layer++)->forward(value);
    shapes[children[0].key() + '.' + child.key()] = {value.sizes().vec(), output.sizes().vec()};
    value = output;
  }
  return shapes;
}

}  // namespace

std::vector<LayerRow> layer_summary(Module& model, const Batch& batch) {
  const EvaluationGuard evaluation(model);
  model.forward_inputs(batch);
  const ShapesByName shapes = shapes_of(model, batch.tensors().front());

  std::vector<LayerRow> rows;
  for_each_module(model, [&](const std::string& name, const torch::nn::Module& layer) {
    LayerRow row{.name = name, .type = layer_name(layer), .input_shape = {}, .output_shape = {}};
    for (const auto& parameter : layer.parameters(/*recurse=*/false)) row.num_parameters += parameter.numel();
    const auto found = shapes.find(row.name);
    if (found != shapes.end()) {
      row.input_shape = found->second.input;
      row.output_shape = found->second.output;
    } else if (!layer.children().empty() && row.num_parameters == 0) {
      return;  // holds the layers that follow
    }
    rows.push_back(std::move(row));
  });
  return rows;
}

}  // namespace kindling
