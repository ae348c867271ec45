#include "kindling/nn/layer_summary.h"

#include <ATen/core/grad_mode.h>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <unordered_set>

#include "device/random_state.h"
#include "kindling/data/input_transform.h"
#include "nn/layer_name.h"
#include "nn/scoped_model_state.h"
#include "tensors/module_tree.h"
#include "tensors/state_fit.h"

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
  auto children = model.named_children();
  if (input_transform_of(model)) children.erase(kInputTransform);
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

std::int64_t product(const std::vector<std::int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

// Each output of a linear or convolution layer takes one multiply-add per weight of its output channel.
std::optional<std::int64_t> multiply_adds_of(const LayerRow& row, const torch::nn::Module& layer,
                                             std::int64_t num_samples) {
  constexpr std::array kCounted{"Linear", "Conv1d", "Conv2d", "Conv3d"};
  const auto own = layer.named_parameters(/*recurse=*/false);
  const auto is_matrix = [](const auto& item) { return item.value().dim() >= 2; };
  if (row.type == "Embedding" || std::none_of(own.begin(), own.end(), is_matrix)) return 0;
  const at::Tensor* const weight = own.find("weight");
  if (std::find(kCounted.begin(), kCounted.end(), row.type) == kCounted.end() || weight == nullptr ||
      weight->size(0) == 0 || row.output_shape.empty())
    return std::nullopt;
  const std::int64_t of_batch = product(row.output_shape) * (weight->numel() / weight->size(0));
  if (num_samples == 0 || of_batch % num_samples != 0) return std::nullopt;
  return of_batch / num_samples;
}

using CountedTensors = std::unordered_set<const at::TensorImpl*>;

// Skips tied weights that an earlier layer has counted.
void count_parameters(LayerRow& row, const torch::nn::Module& layer, CountedTensors& counted) {
  for (const auto& parameter : layer.parameters(/*recurse=*/false)) {
    if (!counted.insert(parameter.unsafeGetTensorImpl()).second) continue;
    row.num_parameters += parameter.numel();
    row.num_trainable += parameter.requires_grad() ? parameter.numel() : 0;
    row.parameter_bytes += parameter.numel() * static_cast<std::int64_t>(parameter.element_size());
  }
}

// Runs the model without a lasting effect on buffers and random numbers. The first run of lazy layers draws
// their initial weights, so random numbers continue after it.
ShapesByName run_for_shapes(Module& model, const Batch& batch) {
  const at::Tensor& first = batch.tensors().front();
  std::optional<RandomStateGuard> random_state;
  if (layers_without_shape(model).empty()) random_state.emplace(first.device());
  const ScopedModelState state(model, ScopedModelState::Extent::buffers,
                               ScopedModelState::HiddenStates::of_evaluation);
  const at::NoGradGuard no_grad;
  model.eval();
  model.forward_inputs(batch);
  return shapes_of(model, first);
}

}  // namespace

std::vector<LayerRow> layer_summary(Module& model, const Batch& batch) {
  const ShapesByName shapes = run_for_shapes(model, batch);

  std::vector<LayerRow> rows;
  CountedTensors counted;
  for_each_module(model, [&](const std::string& name, const torch::nn::Module& layer) {
    if (dynamic_cast<const InputTransform*>(&layer) != nullptr) return;  // the batch is transformed
    LayerRow row{.name = name, .type = layer_name(layer), .input_shape = {}, .output_shape = {}};
    count_parameters(row, layer, counted);
    const auto found = shapes.find(row.name);
    if (found != shapes.end()) {
      row.input_shape = found->second.input;
      row.output_shape = found->second.output;
    } else if (!layer.children().empty() && layer.parameters(/*recurse=*/false).empty()) {
      return;  // holds the layers that follow
    }
    row.multiply_adds = multiply_adds_of(row, layer, batch.num_samples());
    rows.push_back(std::move(row));
  });
  return rows;
}

}  // namespace kindling
