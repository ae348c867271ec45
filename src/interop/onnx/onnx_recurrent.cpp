#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_pinv.h>
#include <ATen/ops/matmul.h>
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
  const auto made = call.add_all(kind.type, inputs, attributes, 1 + states.size());
  return {made[0], {made.begin() + 1, made.end()}};
}

// The initial states, by layer.
std::vector<std::string> rows_of(OnnxCall& call, const std::string& states, std::int64_t layers,
                                 std::int64_t directions) {
  if (layers == 1) return {states};
  const std::string lengths =
      call.int64s(std::vector<std::int64_t>(static_cast<std::size_t>(layers), directions));
  return call.add_all("Split", {states, lengths}, {{"axis", 0}}, static_cast<std::size_t>(layers));
}

void check_recurrent(const OnnxCall& call, std::size_t num_weights, std::size_t wanted) {
  if (call.flag("train") && call.real("dropout") > 0 && call.integer("num_layers") > 1)
    call.refuse("dropout in training mode draws random numbers", "a program in evaluation mode",
                "export the model in evaluation mode: model.eval() in Python");
  if (num_weights != wanted) call.refuse("it has another number of weights than its layers");
}

// An LSTM that projects its hidden state h = P m is one of m without a projection: its recurrent weights are
// multiplied by P, and its first state is one that P maps to the given state.
struct Projection {
  std::vector<at::Tensor> weights;  // by direction: [projected, hidden]

  // Takes the last weight of each direction away.
  static Projection taken_from(OnnxCall& call, std::vector<std::vector<at::Tensor>>& directions);
  std::string applied(OnnxCall& call, const std::string& values) const {  // [..., directions, batch, hidden]
    return call.add("MatMul", {values, call.graph().constant(at::stack(weights).mT().contiguous())});
  }
  std::string inverted(OnnxCall& call, const std::string& state) const;
};

Projection Projection::taken_from(OnnxCall& call, std::vector<std::vector<at::Tensor>>& directions) {
  Projection made;
  for (auto& weights : directions) {
    made.weights.push_back(weights.back().detach());
    weights.pop_back();
    const at::Tensor exact = made.weights.back().to(at::kDouble), inverse = at::linalg_pinv(exact);
    const at::Tensor one = at::eye(exact.size(0), exact.options());
    if ((exact.matmul(inverse) - one).abs().max().item<double>() > 1e-6)
      call.refuse("the rows of its projection (proj_size) depend on each other");
    weights[1] = weights[1].detach().to(at::kDouble).matmul(exact).to(weights[1].scalar_type());
  }
  return made;
}

std::string Projection::inverted(OnnxCall& call, const std::string& state) const {
  std::vector<at::Tensor> inverses;
  for (const at::Tensor& weight : weights)
    inverses.push_back(at::linalg_pinv(weight.to(at::kDouble)).to(weight.scalar_type()));
  return call.add("MatMul", {state, call.graph().constant(at::stack(inverses).mT().contiguous())});
}

LayerResult run_projected_layer(OnnxCall& call, const RecurrentKind& kind, const std::string& x,
                                std::vector<std::string> states,
                                std::vector<std::vector<at::Tensor>> weights) {
  const Projection projection = Projection::taken_from(call, weights);
  states[0] = projection.inverted(call, states[0]);
  LayerResult result = run_layer(call, kind, x, states, weights);
  result.steps = projection.applied(call, result.steps);
  result.states[0] = projection.applied(call, result.states[0]);
  return result;
}

// Stacks layers; sequences without a batch dimension get one temporarily.
OnnxMapping recurrent(const RecurrentKind& kind) {
  return [kind](OnnxCall& call) {
    const std::int64_t layers = call.integer("num_layers"), directions = call.flag("bidirectional") ? 2 : 1;
    const std::vector<at::Tensor> params = call.constants("params");
    std::size_t each = call.flag("has_biases") ? 4 : 2;
    const bool is_projected = std::string(kind.type) == "LSTM" &&
                              params.size() == static_cast<std::size_t>(layers * directions) * (each + 1);
    if (is_projected) ++each;
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
      const LayerResult result = is_projected ? run_projected_layer(call, kind, x, states, weights)
                                              : run_layer(call, kind, x, states, weights);
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
