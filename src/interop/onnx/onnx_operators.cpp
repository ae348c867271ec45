#include "interop/onnx/onnx_operators.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <utility>

namespace kindling {
namespace {

// Other names of operators, with the same arguments.
constexpr std::pair<const char*, const char*> kAliases[] = {
    {"absolute", "abs"},  {"arccos", "acos"},    {"arcsin", "asin"},   {"arctan", "atan"},
    {"arctan2", "atan2"}, {"clip", "clamp"},     {"divide", "div"},    {"fix", "trunc"},
    {"greater", "gt"},    {"less", "lt"},        {"less_equal", "le"}, {"greater_equal", "ge"},
    {"multiply", "mul"},  {"negative", "neg"},   {"not_equal", "ne"},  {"row_stack", "vstack"},
    {"subtract", "sub"},  {"true_divide", "div"}};

// With the overloads that the alias has, too.
void add_alias(std::map<std::string, OnnxMapping>& mappings, const std::string& alias,
               const std::string& name) {
  std::vector<std::pair<std::string, OnnxMapping>> added;
  for (const auto& [known, mapping] : mappings) {
    if (known != name && !known.starts_with(name + ".")) continue;
    const std::string overload = known == name ? "" : known.substr(name.size() + 1);
    if (c10::Dispatcher::singleton().findSchema({"aten::" + alias, overload}))
      added.emplace_back(overload.empty() ? alias : alias + "." + overload, mapping);
  }
  for (auto& each : added) mappings.insert(std::move(each));
}

}  // namespace

std::string self_of(OnnxCall& call) { return call.operand("self", call.result_type()); }

std::string times(OnnxCall& call, const std::string& value, double factor) {
  return factor == 1 ? value : call.add("Mul", {value, call.scalar(factor, call.result_type())});
}

std::string times_argument(OnnxCall& call, const std::string& value, const char* factor) {
  if (call.real(factor) == 1) return value;
  return call.add("Mul", {value, call.operand(factor, call.result_type())});
}

const std::map<std::string, OnnxMapping>& onnx_mappings() {
  static const std::map<std::string, OnnxMapping> all = [] {
    std::map<std::string, OnnxMapping> made;
    for (const auto kind :
         {&onnx_activations, &onnx_pointwise, &onnx_shapes, &onnx_pieces, &onnx_indexing, &onnx_scatters,
          &onnx_order, &onnx_windows, &onnx_creation, &onnx_products, &onnx_convolutions, &onnx_pools,
          &onnx_reductions, &onnx_norms, &onnx_attention, &onnx_recurrent, &onnx_numbers})
      for (auto& [name, mapping] : kind()) made.emplace(name, std::move(mapping));
    for (const auto& [alias, name] : kAliases) add_alias(made, alias, name);
    return made;
  }();
  return all;
}

}  // namespace kindling
