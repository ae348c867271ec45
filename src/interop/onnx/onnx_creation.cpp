#include "interop/onnx/onnx_operators.h"

// Tensors whose sizes the program computes; tensors of constant sizes are constants.
namespace kindling {
namespace {

void fill(OnnxCall& call, const std::string& value, const std::string& sizes) {
  call.set_result(call.add("Expand", {value, sizes}));
}

OnnxMapping filled(double value) {
  return [value](OnnxCall& call) {
    fill(call, call.scalar(value, call.result_type()), call.vector_of(call.numbers("size")));
  };
}

void filled_with_argument(OnnxCall& call) {
  fill(call, call.operand("fill_value", call.result_type()), call.vector_of(call.numbers("size")));
}

OnnxMapping filled_like(double value) {
  return [value](OnnxCall& call) {
    fill(call, call.scalar(value, call.result_type()), call.add("Shape", {call.tensor("self")}));
  };
}

void filled_like_with_argument(OnnxCall& call) {
  const char* const value = call.has("value") ? "value" : "fill_value";
  fill(call, call.operand(value, call.result_type()), call.add("Shape", {call.tensor("self")}));
}

// Other numbers than PyTorch's, of the same distribution.
void normal_like(OnnxCall& call) {
  call.set_result(
      call.add("RandomNormalLike", {call.tensor("self")}, {{"dtype", onnx_type_of(call.result_type())}}));
}

void scalar_tensor(OnnxCall& call) { call.set_result(call.operand("s", call.result_type())); }

void range(OnnxCall& call) {
  const at::ScalarType type = call.result_type();
  const bool is_narrow = type != at::kLong && type != at::kFloat && type != at::kDouble && type != at::kInt;
  const at::ScalarType in = is_narrow ? at::kFloat : type;
  const std::string begin = call.has("start") ? call.operand("start", in) : call.scalar(0, in);
  const std::string step = call.has("step") ? call.operand("step", in) : call.scalar(1, in);
  call.set_result(call.cast(call.add("Range", {begin, call.operand("end", in), step}), in, type));
}

// Converts to the dtype of the result in the program, however it was requested.
void convert(OnnxCall& call) {
  if (call.type_of("self") == call.result_type()) return call.set_result_to_argument("self");
  call.set_result(call.operand("self", call.result_type()));
}

// The new values replace the old ones.
void overwrite(OnnxCall& call) {
  call.set_result(call.add(
      "Expand", {call.operand("src", call.result_type()), call.add("Shape", {call.tensor("self")})}));
}

}  // namespace

OnnxMappings onnx_creation() {
  return {{"zeros", filled(0)},
          {"ones", filled(1)},
          {"full", &filled_with_argument},
          {"empty.memory_format", filled(0)},
          {"new_zeros", filled(0)},
          {"new_ones", filled(1)},
          {"new_full", &filled_with_argument},
          {"new_empty", filled(0)},
          {"zeros_like", filled_like(0)},
          {"ones_like", filled_like(1)},
          {"full_like", &filled_like_with_argument},
          {"empty_like", filled_like(0)},
          {"randn_like", &normal_like},
          {"fill_.Scalar", &filled_like_with_argument},
          {"fill_.Tensor", &filled_like_with_argument},
          {"zero_", filled_like(0)},
          {"copy_", &overwrite},
          {"scalar_tensor", &scalar_tensor},
          {"arange", &range},
          {"arange.start", &range},
          {"arange.start_step", &range},
          {"to.dtype", &convert},
          {"to.dtype_layout", &convert},
          {"to.device", &convert},
          {"to.other", &convert},
          {"type_as", &convert},
          {"_to_copy", &convert}};
}

}  // namespace kindling
