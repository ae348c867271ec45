#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "interop/onnx/onnx_operators.h"

namespace kindling {
namespace {

constexpr const char* kEvaluationRemedy = "export the model in evaluation mode: model.eval() in Python";

// ONNX's norms always have a scale and a shift.
std::string or_ones(OnnxCall& call, const char* name, at::IntArrayRef sizes) {
  if (call.has(name)) return call.tensor(name);
  return call.graph().constant(at::ones(sizes, at::dtype(call.result_type())));
}

std::string or_zeros(OnnxCall& call, const char* name, at::IntArrayRef sizes) {
  if (call.has(name)) return call.tensor(name);
  return call.graph().constant(at::zeros(sizes, at::dtype(call.result_type())));
}

std::int64_t channels_of(OnnxCall& call) {
  const ProgramSize& size = call.meta("input").sizes.at(1);
  if (!size.expression.empty()) call.refuse("the number of channels is not constant");
  return size.number;
}

std::string by_statistics(OnnxCall& call) {
  const std::int64_t channels = channels_of(call);
  return call.add(
      "BatchNormalization",
      {call.tensor("input"), or_ones(call, "weight", {channels}), or_zeros(call, "bias", {channels}),
       call.tensor("running_mean"), call.tensor("running_var")},
      {{"epsilon", call.real("eps")}});
}

void batch_norm(OnnxCall& call) {
  if (call.has("training") && call.flag("training"))
    call.refuse("batch norm in training mode uses the statistics of each batch",
                "a program in evaluation mode", kEvaluationRemedy);
  call.set_result(by_statistics(call));
}

void layer_norm(OnnxCall& call) {
  const std::vector<std::int64_t> sizes = call.integers("normalized_shape");
  const std::string bias = call.has("bias") ? call.tensor("bias") : "";
  call.set_result(
      call.add("LayerNormalization", {call.tensor("input"), or_ones(call, "weight", sizes), bias},
               {{"axis", -static_cast<std::int64_t>(sizes.size())}, {"epsilon", call.real("eps")}}));
}

// Each group is an instance's channel; scale and shift are the channels' own. (ONNX's GroupNormalization has
// them by group before opset 21.)
OnnxMapping group_norm(const char* groups_name) {
  return [groups_name](OnnxCall& call) {
    const std::int64_t groups = call.integer(groups_name), rank = call.rank("input");
    const std::string x = call.tensor("input");
    const auto per_group = [&](double value) {
      return call.graph().constant(at::zeros({groups}, at::dtype(call.result_type())).fill_(value));
    };
    std::string y =
        call.add("InstanceNormalization",
                 {call.add("Reshape", {x, call.int64s({0, groups, -1})}), per_group(1), per_group(0)},
                 {{"epsilon", call.real("eps")}});
    y = call.add("Reshape", {y, call.add("Shape", {x})});
    std::vector<std::int64_t> by_channel(static_cast<std::size_t>(rank) - 1, 1);
    by_channel[0] = -1;
    if (call.has("weight")) y = call.add("Mul", {y, call.reshaped(call.tensor("weight"), by_channel)});
    if (call.has("bias")) y = call.add("Add", {y, call.reshaped(call.tensor("bias"), by_channel)});
    call.set_result(y);
  };
}

void instance_norm(OnnxCall& call) {
  const bool has_statistics = call.has("running_mean");
  if (!call.flag("use_input_stats")) return call.set_result(by_statistics(call));
  if (has_statistics)
    call.refuse("instance norm in training mode updates its statistics", "a program in evaluation mode",
                kEvaluationRemedy);
  const std::int64_t channels = channels_of(call);
  call.set_result(call.add(
      "InstanceNormalization",
      {call.tensor("input"), or_ones(call, "weight", {channels}), or_zeros(call, "bias", {channels})},
      {{"epsilon", call.real("eps")}}));
}

// x / sqrt(mean(x * x) + eps)
void rms_norm(OnnxCall& call) {
  const at::ScalarType type = call.result_type();
  const std::string x = call.tensor("input");
  std::vector<std::int64_t> dims;
  for (auto left = static_cast<std::int64_t>(call.integers("normalized_shape").size()); left > 0; --left)
    dims.push_back(-left);
  const double eps = call.has("eps")      ? call.real("eps")
                     : type == at::kFloat ? std::numeric_limits<float>::epsilon()
                                          : std::numeric_limits<double>::epsilon();
  const std::string square = call.add("ReduceMean", {call.add("Mul", {x, x}), call.int64s(dims)});
  const std::string root = call.add("Sqrt", {call.add("Add", {square, call.scalar(eps, type)})});
  const std::string y = call.add("Div", {x, root});
  call.set_result(call.has("weight") ? call.add("Mul", {y, call.tensor("weight")}) : y);
}

OnnxMapping over_dimension(const char* type) {
  return [type](OnnxCall& call) {
    const std::int64_t rank = call.rank("self");
    call.set_result(
        call.add(type, {call.operand("self", call.result_type())}, {{"axis", call.dim("dim", rank)}}));
  };
}

// Rows that contain only minus infinity become zeros.
void safe_softmax(OnnxCall& call) {
  const std::string y = call.add("Softmax", {call.operand("self", call.result_type())},
                                 {{"axis", call.dim("dim", call.rank("self"))}});
  call.set_result(call.add("Where", {call.add("IsNaN", {y}), call.scalar(0, call.result_type()), y}));
}

}  // namespace

OnnxMappings onnx_norms() {
  return {{"batch_norm", &batch_norm},
          {"_native_batch_norm_legit_no_training", &batch_norm},
          {"layer_norm", &layer_norm},
          {"native_layer_norm", &layer_norm},
          {"group_norm", group_norm("num_groups")},
          {"native_group_norm", group_norm("group")},
          {"instance_norm", &instance_norm},
          {"rms_norm", &rms_norm},
          {"softmax.int", over_dimension("Softmax")},
          {"_softmax", over_dimension("Softmax")},
          {"log_softmax.int", over_dimension("LogSoftmax")},
          {"_log_softmax", over_dimension("LogSoftmax")},
          {"_safe_softmax", &safe_softmax}};
}

}  // namespace kindling
