#include <cmath>

#include "programs/onnx_operators.h"

namespace kindling {
namespace {

std::string activation_input(OnnxCall& call) { return call.operand("self", call.result_type()); }

// The operator of ONNX that is the same.
OnnxMapping same_operator(const char* type) {
  return [type](OnnxCall& call) { call.give(call.add(type, {activation_input(call)})); };
}

std::string times(OnnxCall& call, const std::string& value, double factor) {
  return factor == 1 ? value : call.add("Mul", {value, call.scalar(factor, call.result_type())});
}

void silu(OnnxCall& call) {
  const std::string x = activation_input(call);
  call.give(call.add("Mul", {x, call.add("Sigmoid", {x})}));
}

void gelu(OnnxCall& call) {
  call.give(call.add("Gelu", {activation_input(call)}, {{"approximate", call.text("approximate")}}));
}

// scale * (max(0, x) + min(0, alpha * (exp(input_scale * x) - 1)))
void elu(OnnxCall& call) {
  const double scale = call.real("scale");
  if (call.real("input_scale") != 1) call.refuse("its input_scale is not 1");
  call.give(times(call, call.add("Elu", {activation_input(call)}, {{"alpha", call.real("alpha")}}), scale));
}

void celu(OnnxCall& call) {
  call.give(call.add("Celu", {activation_input(call)}, {{"alpha", call.real("alpha")}}));
}

void leaky_relu(OnnxCall& call) {
  call.give(call.add("LeakyRelu", {activation_input(call)}, {{"alpha", call.real("negative_slope")}}));
}

// One slope, or one for each channel, which is the second dimension.
void prelu(OnnxCall& call) {
  std::string slope = call.tensor("weight");
  const std::int64_t rank = call.rank("self");
  if (rank > 2) {
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(rank) - 1, 1);
    sizes[0] = -1;
    slope = call.reshaped(slope, sizes);
  }
  call.give(call.add("PRelu", {activation_input(call), slope}));
}

void hardtanh(OnnxCall& call) {
  const at::ScalarType type = call.result_type();
  call.give(call.add("Clip", {activation_input(call), call.scalar(call.real("min_val"), type),
                              call.scalar(call.real("max_val"), type)}));
}

void relu6(OnnxCall& call) {
  const at::ScalarType type = call.result_type();
  call.give(call.add("Clip", {activation_input(call), call.scalar(0, type), call.scalar(6, type)}));
}

void hardsigmoid(OnnxCall& call) {
  call.give(call.add("HardSigmoid", {activation_input(call)}, {{"alpha", 1.0 / 6}, {"beta", 0.5}}));
}

// log(1 + exp(beta * x)) / beta, and x where beta * x is over the threshold.
void softplus(OnnxCall& call) {
  const double beta = call.real("beta");
  const std::string x = activation_input(call), scaled = times(call, x, beta);
  const std::string soft = times(call, call.add("Softplus", {scaled}), 1 / beta);
  const std::string limit = call.scalar(call.real("threshold"), call.result_type());
  call.give(call.add("Where", {call.add("Greater", {scaled, limit}), x, soft}));
}

void log_sigmoid(OnnxCall& call) {
  const std::string x = activation_input(call);
  call.give(call.add("Neg", {call.add("Softplus", {call.add("Neg", {x})})}));
}

void threshold(OnnxCall& call) {
  const std::string x = activation_input(call);
  const at::ScalarType type = call.result_type();
  const std::string is_over = call.add("Greater", {x, call.scalar(call.real("threshold"), type)});
  call.give(call.add("Where", {is_over, x, call.scalar(call.real("value"), type)}));
}

void softshrink(OnnxCall& call) {
  const double lambda = call.real("lambd");
  call.give(call.add("Shrink", {activation_input(call)}, {{"lambd", lambda}, {"bias", lambda}}));
}

void hardshrink(OnnxCall& call) {
  const std::string x = activation_input(call);
  const at::ScalarType type = call.result_type();
  const std::string is_over =
      call.add("Greater", {call.add("Abs", {x}), call.scalar(call.real("lambd"), type)});
  call.give(call.add("Where", {is_over, x, call.scalar(0, type)}));
}

void glu(OnnxCall& call) {
  const std::int64_t dim = call.dim("dim", call.rank("self"));
  const auto halves =
      call.graph().add_all("Split", {activation_input(call)}, {{"axis", dim}, {"num_outputs", 2}}, 2);
  call.give(call.add("Mul", {halves[0], call.add("Sigmoid", {halves[1]})}));
}

}  // namespace

OnnxMappings onnx_activations() {
  return {{"relu", same_operator("Relu")},
          {"sigmoid", same_operator("Sigmoid")},
          {"tanh", same_operator("Tanh")},
          {"selu", same_operator("Selu")},
          {"mish", same_operator("Mish")},
          {"hardswish", same_operator("HardSwish")},
          {"relu6", &relu6},
          {"silu", &silu},
          {"gelu", &gelu},
          {"elu", &elu},
          {"celu", &celu},
          {"leaky_relu", &leaky_relu},
          {"prelu", &prelu},
          {"hardtanh", &hardtanh},
          {"hardsigmoid", &hardsigmoid},
          {"softplus", &softplus},
          {"log_sigmoid", &log_sigmoid},
          {"threshold", &threshold},
          {"softshrink", &softshrink},
          {"hardshrink", &hardshrink},
          {"glu", &glu}};
}

}  // namespace kindling
