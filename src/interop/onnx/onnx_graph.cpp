#include "interop/onnx/onnx_graph.h"

#include <array>
#include <limits>
#include <utility>

#include "formats/protobuf_writer.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "tensors/host_values.h"

namespace kindling {
namespace {

// The numbers of fields and types are those of onnx.proto.
constexpr std::array<std::pair<at::ScalarType, std::int64_t>, 12> kOnnxTypes{{
    {at::kFloat, 1},
    {at::kByte, 2},
    {at::kChar, 3},
    {at::kShort, 5},
    {at::kInt, 6},
    {at::kLong, 7},
    {at::kBool, 9},
    {at::kHalf, 10},
    {at::kDouble, 11},
    {at::kComplexFloat, 14},
    {at::kComplexDouble, 15},
    {at::kBFloat16, 16},
}};

constexpr std::size_t kProtobufLimit = std::numeric_limits<std::int32_t>::max();

[[noreturn]] void refuse_size() {
  throw CheckpointError({.place = "the model as ONNX",
                         .found = "it is larger than 2 GB, the limit of protobuf",
                         .remedy = "export it as .pt2, or convert its weights to a 16-bit dtype"});
}

ProtobufWriter attribute_message(const OnnxAttribute& attribute) {
  ProtobufWriter message;
  message.text(1, attribute.name);
  if (const auto* number = std::get_if<std::int64_t>(&attribute.value)) {
    message.integer(3, *number);
    message.integer(20, 2);
  } else if (const auto* real = std::get_if<double>(&attribute.value)) {
    message.real(2, static_cast<float>(*real));
    message.integer(20, 1);
  } else if (const auto* text = std::get_if<std::string>(&attribute.value)) {
    message.text(4, *text);
    message.integer(20, 3);
  } else if (const auto* numbers = std::get_if<std::vector<std::int64_t>>(&attribute.value)) {
    for (const std::int64_t each : *numbers) message.integer(8, each);
    message.integer(20, 7);
  } else {
    for (const std::string& each : std::get<std::vector<std::string>>(attribute.value)) message.text(9, each);
    message.integer(20, 8);
  }
  return message;
}

ProtobufWriter value_message(const std::string& name, at::ScalarType type,
                             const std::vector<OnnxSize>& sizes) {
  ProtobufWriter shape;
  for (const OnnxSize& size : sizes) {
    ProtobufWriter dimension;
    if (size.number) dimension.integer(1, *size.number);
    if (!size.name.empty()) dimension.text(2, size.name);
    shape.message(1, std::move(dimension));
  }
  ProtobufWriter tensor_type, any_type, value;
  tensor_type.integer(1, onnx_type_of(type));
  tensor_type.message(2, std::move(shape));
  any_type.message(1, std::move(tensor_type));
  value.text(1, name);
  value.message(2, std::move(any_type));
  return value;
}

}  // namespace

std::int64_t onnx_type_of(at::ScalarType type) {
  for (const auto& [ours, onnx] : kOnnxTypes)
    if (ours == type) return onnx;
  throw CheckpointError({.place = "the model as ONNX",
                         .found = std::string("ONNX does not support dtype ") + c10::toString(type)});
}

std::string OnnxGraph::unique_name(const std::string& wanted) {
  if (names_.insert(wanted).second) return wanted;
  for (;;) {
    std::string name = wanted + "_" + std::to_string(++counts_[wanted]);
    if (names_.insert(name).second) return name;
  }
}

std::string OnnxGraph::constant(const at::Tensor& tensor, const std::string& wanted_name) {
  const std::size_t bytes = static_cast<std::size_t>(tensor.numel()) * tensor.element_size();
  constant_bytes_ += bytes;
  if (constant_bytes_ > kProtobufLimit) refuse_size();
  onnx_type_of(tensor.scalar_type());  // throws here, where the caller is known
  return constants_.emplace_back(unique_name(wanted_name), host_values(tensor)).first;
}

std::string OnnxGraph::shared_constant(const std::string& key, const std::function<at::Tensor()>& make) {
  std::string& name = shared_[key];
  if (name.empty()) name = constant(make());
  return name;
}

// Those that no node has as an input would make runtimes warn.
void OnnxGraph::add_used_constants() {
  for (const auto& [name, tensor] : constants_) {
    if (!used_.contains(name)) continue;
    ProtobufWriter message;
    for (const std::int64_t size : tensor.sizes()) message.integer(1, size);
    message.integer(2, onnx_type_of(tensor.scalar_type()));
    message.text(8, name);
    message.bytes(9, {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()});
    graph_.message(5, std::move(message));
  }
}

void OnnxGraph::add_node(const std::string& type, const std::vector<std::string>& inputs,
                         const std::vector<OnnxAttribute>& attributes,
                         const std::vector<std::string>& outputs) {
  std::size_t num_inputs = inputs.size();
  while (num_inputs > 0 && inputs[num_inputs - 1].empty()) --num_inputs;
  ProtobufWriter node;
  for (std::size_t i = 0; i < num_inputs; ++i) node.text(1, inputs[i]);
  used_.insert(inputs.begin(), inputs.end());
  for (const std::string& output : outputs) node.text(2, output);
  node.text(4, type);
  for (const OnnxAttribute& attribute : attributes) node.message(5, attribute_message(attribute));
  graph_.message(1, std::move(node));
}

std::vector<std::string> OnnxGraph::add_all(const std::string& type, const std::vector<std::string>& inputs,
                                            const std::vector<OnnxAttribute>& attributes,
                                            std::size_t num_outputs) {
  std::vector<std::string> outputs;
  for (std::size_t i = 0; i < num_outputs; ++i) outputs.push_back(unique_name(type));
  add_node(type, inputs, attributes, outputs);
  return outputs;
}

std::string OnnxGraph::add_input(const std::string& wanted_name, at::ScalarType type,
                                 const std::vector<OnnxSize>& sizes) {
  const std::string name = unique_name(wanted_name);
  graph_.message(11, value_message(name, type, sizes));
  return name;
}

void OnnxGraph::add_output(const std::string& wanted_name, const std::string& value, at::ScalarType type,
                           const std::vector<OnnxSize>& sizes) {
  const std::string name = unique_name(wanted_name);
  add_node("Identity", {value}, {}, {name});
  graph_.message(12, value_message(name, type, sizes));
}

void OnnxGraph::write(const std::filesystem::path& path, const std::map<std::string, std::string>& metadata) {
  add_used_constants();
  graph_.text(2, "model");
  ProtobufWriter operators, model;
  operators.text(1, "");
  operators.integer(2, kOpset);
  model.integer(1, kIrVersion);
  model.text(2, "kindling");
  model.message(7, std::move(graph_));
  model.message(8, std::move(operators));
  for (const auto& [name, text] : metadata) {
    ProtobufWriter entry;
    entry.text(1, name);
    entry.text(2, text);
    model.message(14, std::move(entry));
  }
  if (model.size() > kProtobufLimit) refuse_size();
  write_file_atomically(path, model.pieces());
}

}  // namespace kindling
