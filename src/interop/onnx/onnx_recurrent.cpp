#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>

#include "interop/onnx/onnx_operators.h"

namespace kindling {
namespace {

// A recurrent layer in ONNX: its operator, the positions of its gates in PyTorch's order, and its attributes.
struct RecurrentKind {
  const char* type;
  std::vector<std::int64_t> gates;
  std::vector<OnnxAttribute> attributes;
  std::string activation;  // if there is a choice
};

const RecurrentKind kLstm{"LSTM", {0, 3, 1, 2}, {}, ""};
const RecurrentKind kGru{"GRU", {1, 0, 2}, {{"linear_before_reset", 1}}, ""};
const RecurrentKind kTanh{"RNN", {0}, {}, "Tanh"};
const RecurrentKind kRelu{"RNN", {0}, {}, "Relu"};

at::Tensor in_onnx_order(const RecurrentKind& kind, const at::Tensor& weight) {
  const auto gates = weight.detach().chunk(static_cast<std::int64_t>(kind.gates.size()), 0);
  std::vector<at::Tensor> ordered;
  for (const std::int64_t gate : kind.gates) ordered.push_back(gates.at(static_cast<std::size_t>(gate)));
  return at::cat(ordered, 0);
}

// The results of a layer: all steps [time, directions, batch, hidden], and the last states.
struct LayerResult {
  std::string steps;
  std::vector<std::string> states;  // hidden, and the cells of an LSTM: [directions, batch, hidden]
};

// `weights`: for each direction those of the input and of the hidden state, and both biases if there are any.
LayerResult run_layer(OnnxCall& call, const RecurrentKind& kind, const std::string& x,
                      const std::vector<std::string>& states,
                      const std::vector<std::vector<at::Tensor>>& weights) {
  std::vector<at::Tensor> input_weights, recurrent_weights, biases;
  for (const auto& direction : weights) {
    input_weights.push_back(in_onnx_order(kind, direction.at(0)));
    recurrent_weights.push_back(in_onnx_order(kind, direction.at(1)));
    if (direction.size() == 4)
      biases.push_back(at::cat({in_onnx_order(kind, direction[2]), in_onnx_order(kind, direction[3])}));
  }
  std::vector<OnnxAttribute> attributes = kind.attributes;
  attributes.emplace_back("hidden_size", recurrent_weights[0].size(1));
  if (weights.size() == 2) attributes.emplace_back("direction", std::string("bidirectional"));
  if (!kind.activation.empty())
    attributes.emplace_back("activations", std::vector<std::string>(weights.size(), kind.activation));
  std::vector<std::string> inputs{x, call.graph().constant(at::stack(input_weights)),
                                  call.graph().constant(at::stack(recurrent_weights)),
                                  biases.empty() ? "" : call.graph().constant(at::stack(biases)), ""};
  inputs.insert(inputs.end(), states.begin(), states.end());
  const auto made = call.graph().add_all(kind.type, inputs, attributes, 1 + states.size());
  return {made[0], {made.begin() + 1, made.end()}};
}

// The initial states, by layer.
std::vector<std::string> rows_of(OnnxCall& call, const std::string& states, std::int64_t layers,
                                 std::int64_t directions) {
  if (layers == 1) return {states};
  const std::string lengths =
      call.int64s(std::vector<std::int64_t>(static_cast<std::size_t>(layers), directions));
  return call.graph().add_all("Split", {states, lengths}, {{"axis", 0}}, static_cast<std::size_t>(layers));
}

void check_recurrent(const OnnxCall& call, std::size_t num_weights, std::size_t wanted) {
  if (call.flag("train") && call.real("dropout") > 0 && call.integer("num_layers") > 1)
    call.refuse("dropout in training mode draws random numbers", "a program in evaluation mode",
                "export the model in evaluation mode: model.eval() in Python");
  if (num_weights != wanted) call.refuse("its hidden state is projected (proj_size)");
}

// Stacks layers; sequences without a batch dimension get one temporarily.
OnnxMapping recurrent(const RecurrentKind& kind) {
  return [kind](OnnxCall& call) {
    const std::int64_t layers = call.integer("num_layers"), directions = call.flag("bidirectional") ? 2 : 1;
    const std::vector<at::Tensor> params = call.constants("params");
    const std::size_t each = call.flag("has_biases") ? 4 : 2;
    check_recurrent(call, params.size(), static_cast<std::size_t>(layers * directions) * each);
    const bool is_sample = call.rank("input") == 2, is_batch_first = call.flag("batch_first") && !is_sample;
    const std::string second = call.int64s({1});
    std::string x = call.tensor("input");
    std::vector<std::string> given =
        call.is_tensor("hx") ? std::vector<std::string>{call.tensor("hx")} : call.tensors("hx");
    if (is_sample) {
      x = call.add("Unsqueeze", {x, second});
      for (std::string& state : given) state = call.add("Unsqueeze", {state, second});
    }
    if (is_batch_first) x = call.permuted(x, {1, 0, 2});
    std::vector<std::vector<std::string>> before, after(given.size());
    for (const std::string& state : given) before.push_back(rows_of(call, state, layers, directions));
    auto weight = params.begin();
    for (std::size_t layer = 0; layer < static_cast<std::size_t>(layers); ++layer) {
      std::vector<std::vector<at::Tensor>> weights;
      for (std::int64_t i = 0; i < directions; ++i, weight += static_cast<std::ptrdiff_t>(each))
        weights.emplace_back(weight, weight + static_cast<std::ptrdiff_t>(each));
      std::vector<std::string> states;
      for (const auto& rows : before) states.push_back(rows[layer]);
      const LayerResult result = run_layer(call, kind, x, states, weights);
      for (std::size_t i = 0; i < after.size(); ++i) after[i].push_back(result.states[i]);
      x = directions == 1
              ? call.add("Squeeze", {result.steps, second})
              : call.add("Reshape", {call.permuted(result.steps, {0, 2, 1, 3}), call.int64s({0, 0, -1})});
    }
    if (is_batch_first) x = call.permuted(x, {1, 0, 2});
    call.set_result(is_sample ? call.add("Squeeze", {x, second}) : x, 0);
    for (std::size_t i = 0; i < after.size(); ++i) {
      std::string states = layers == 1 ? after[i][0] : call.add("Concat", after[i], {{"axis", 0}});
      call.set_result(is_sample ? call.add("Squeeze", {states, second}) : states, i + 1);
    }
  };
}

// One step: a sequence of length 1.
OnnxMapping recurrent_cell(const RecurrentKind& kind) {
  return [kind](OnnxCall& call) {
    const std::string front = call.int64s({0});
    std::vector<at::Tensor> weights;
    for (const char* const name : {"w_ih", "w_hh", "b_ih", "b_hh"}) {
      if (!call.has(name)) continue;
      const at::Tensor* const weight = call.constant(name);
      if (weight == nullptr) call.refuse("its weights are computed from inputs");
      weights.push_back(*weight);
    }
    if (call.rank("input") != 2) call.refuse("its input has no batch");
    std::vector<std::string> states =
        call.is_tensor("hx") ? std::vector<std::string>{call.tensor("hx")} : call.tensors("hx");
    for (std::string& state : states) state = call.add("Unsqueeze", {state, front});
    const std::string x = call.add("Unsqueeze", {call.tensor("input"), front});
    const LayerResult result = run_layer(call, kind, x, states, {weights});
    for (std::size_t i = 0; i < states.size(); ++i)
      call.set_result(call.add("Squeeze", {result.states[i], front}), i);
  };
}

}  // namespace

OnnxMappings onnx_recurrent() {
  return {{"lstm.input", recurrent(kLstm)},         {"gru.input", recurrent(kGru)},
          {"rnn_tanh.input", recurrent(kTanh)},     {"rnn_relu.input", recurrent(kRelu)},
          {"lstm_cell", recurrent_cell(kLstm)},     {"gru_cell", recurrent_cell(kGru)},
          {"rnn_tanh_cell", recurrent_cell(kTanh)}, {"rnn_relu_cell", recurrent_cell(kRelu)}};
}

}  // namespace kindling
