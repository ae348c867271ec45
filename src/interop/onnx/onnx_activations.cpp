#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "interop/onnx/onnx_operators.h"

// Activation functions.
namespace kindling {
namespace {

void silu(OnnxCall& call) {
  const std::string x = self_of(call);
  call.set_result(call.add("Mul", {x, call.add("Sigmoid", {x})}));
}

// onnxruntime's Relu takes no integers of 64 bits.
void relu(OnnxCall& call) {
  const at::ScalarType type = call.result_type();
  const std::string x = self_of(call);
  call.set_result(at::isFloatingType(type) ? call.add("Relu", {x})
                                           : call.add("Max", {x, call.scalar(0, type)}));
}

void gelu(OnnxCall& call) {
  call.set_result(call.add("Gelu", {self_of(call)}, {{"approximate", call.text("approximate")}}));
}

// scale * (max(0, x) + min(0, alpha * (exp(input_scale * x) - 1)))
void elu(OnnxCall& call) {
  const double scale = call.real("scale");
  if (call.real("input_scale") != 1) call.refuse("its input_scale is not 1");
  call.set_result(times(call, call.add("Elu", {self_of(call)}, {{"alpha", call.real("alpha")}}), scale));
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
  call.set_result(call.add("PRelu", {self_of(call), slope}));
}

void hardtanh(OnnxCall& call) {
  const at::ScalarType type = call.result_type();
  call.set_result(call.add("Clip", {self_of(call), call.scalar(call.real("min_val"), type),
                                    call.scalar(call.real("max_val"), type)}));
}

void relu6(OnnxCall& call) {
  const at::ScalarType type = call.result_type();
  call.set_result(call.add("Clip", {self_of(call), call.scalar(0, type), call.scalar(6, type)}));
}

void hardsigmoid(OnnxCall& call) {
  call.set_result(call.add("HardSigmoid", {self_of(call)}, {{"alpha", 1.0 / 6}, {"beta", 0.5}}));
}

// log(1 + exp(beta * x)) / beta, and x where beta * x is over the threshold.
void softplus(OnnxCall& call) {
  const double beta = call.real("beta");
  const std::string x = self_of(call), scaled = times(call, x, beta);
  const std::string soft = times(call, call.add("Softplus", {scaled}), 1 / beta);
  const std::string limit = call.scalar(call.real("threshold"), call.result_type());
  call.set_result(call.add("Where", {call.add("Greater", {scaled, limit}), x, soft}));
}

void log_sigmoid(OnnxCall& call) {
  const std::string x = self_of(call);
  call.set_result(call.add("Neg", {call.add("Softplus", {call.add("Neg", {x})})}));
}

void threshold(OnnxCall& call) {
  const std::string x = self_of(call);
  const at::ScalarType type = call.result_type();
  const std::string is_low = call.add("LessOrEqual", {x, call.scalar(call.real("threshold"), type)});
  call.set_result(call.add("Where", {is_low, call.scalar(call.real("value"), type), x}));  // NaN stays
}

// ONNX's Shrink makes NaN 0.
void softshrink(OnnxCall& call) {
  const at::ScalarType type = call.result_type();
  const std::string x = self_of(call), lambda = call.scalar(call.real("lambd"), type),
                    inner = call.add("Clip", {x, call.add("Neg", {lambda}), lambda});
  call.set_result(call.add("Sub", {x, inner}));
}

void hardshrink(OnnxCall& call) {
  const std::string x = self_of(call);
  const at::ScalarType type = call.result_type();
  const std::string is_small =
      call.add("LessOrEqual", {call.add("Abs", {x}), call.scalar(call.real("lambd"), type)});
  call.set_result(call.add("Where", {is_small, call.scalar(0, type), x}));  // NaN stays
}

void glu(OnnxCall& call) {
  const std::int64_t dim = call.dim("dim", call.rank("self"));
  const auto halves = call.add_all("Split", {self_of(call)}, {{"axis", dim}, {"num_outputs", 2}}, 2);
  call.set_result(call.add("Mul", {halves[0], call.add("Sigmoid", {halves[1]})}));
}

}  // namespace

OnnxMappings onnx_activations() {
  return {{"relu6", &relu6},
          {"silu", &silu},
          {"relu", &relu},
          {"gelu", &gelu},
          {"elu", &elu},
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
