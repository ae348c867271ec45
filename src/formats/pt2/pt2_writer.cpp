#include "formats/pt2/pt2_writer.h"

#include <cmath>
#include <complex>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error_kind.h"
#include "formats/pt2/program_weight.h"
#include "kindling/base/file.h"

namespace kindling {
namespace {

using Json = nlohmann::ordered_json;

// The schema of PyTorch 2.13; its loader accepts other minor versions too.
constexpr int kSchemaMajorWritten = 8, kSchemaMinorWritten = 20, kAtenOpset = 10, kStridedInSchema = 7;
constexpr int kPositionalInSchema = 1, kKeywordInSchema = 2;

template <class Parts, class Make>
Json list_json(const Parts& parts, Make make) {
  Json list = Json::array();
  for (const auto& part : parts) list.push_back(make(part));
  return list;
}

Json size_json(const ProgramSize& size) {
  if (size.expression.empty()) return {{"as_int", size.number}};
  return {{"as_expr", {{"expr_str", size.expression}, {"hint", {{"as_int", size.number}}}}}};
}

Json device_json(const ProgramDevice& device) {
  return {{"type", device.type}, {"index", device.index ? Json(*device.index) : Json(nullptr)}};
}

Json tensor_json(const ProgramTensor& tensor) {
  return {{"dtype", static_cast<int>(tensor.type)},
          {"sizes", list_json(tensor.sizes, size_json)},
          {"requires_grad", tensor.requires_grad},
          {"device", device_json(tensor.device)},
          {"strides", list_json(tensor.strides, size_json)},
          {"storage_offset", size_json(tensor.offset)},
          {"layout", kStridedInSchema}};
}

// JSON has no numbers for these.
Json real_json(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

Json argument_json(const ProgramArgument& argument);

Json list_argument_json(const ProgramList& list) {
  using Element = ProgramList::Element;
  constexpr const char* kNames[] = {"as_tensors",  "as_optional_tensors", "as_ints",
                                    "as_sym_ints", "as_floats",           "as_bools"};
  const char* name = kNames[static_cast<std::size_t>(list.element)];
  return {{name, list_json(list.items, [&](const ProgramArgument& item) -> Json {
             Json one = argument_json(item);
             const bool is_whole = list.element == Element::optional_tensors ||
                                   (list.element == Element::symbolic_integers && one.contains("as_int"));
             return is_whole ? one : one.front();  // {"as_none": true}, but 3 instead of {"as_int": 3}
           })}};
}

struct ArgumentJson {
  Json operator()(std::monostate) const { return {{"as_none", true}}; }
  Json operator()(const TensorName& tensor) const { return {{"as_tensor", {{"name", tensor.name}}}}; }
  Json operator()(const NumberName& number) const {
    constexpr const char* kNames[] = {"as_sym_int", "as_sym_float", "as_sym_bool"};
    return {{kNames[static_cast<std::size_t>(number.kind)], {{"as_name", number.name}}}};
  }
  Json operator()(bool value) const { return {{"as_bool", value}}; }
  Json operator()(std::int64_t value) const { return {{"as_int", value}}; }
  Json operator()(double value) const { return {{"as_float", real_json(value)}}; }
  Json operator()(const std::complex<double>& value) const {
    return {{"as_complex", {{"real", real_json(value.real())}, {"imag", real_json(value.imag())}}}};
  }
  Json operator()(const std::string& value) const { return {{"as_string", value}}; }
  Json operator()(ProgramType value) const { return {{"as_scalar_type", static_cast<int>(value)}}; }
  Json operator()(ProgramMemoryFormat value) const { return {{"as_memory_format", static_cast<int>(value)}}; }
  Json operator()(StridedLayout) const { return {{"as_layout", kStridedInSchema}}; }
  Json operator()(const ProgramDevice& value) const { return {{"as_device", device_json(value)}}; }
  Json operator()(const ProgramList& list) const { return list_argument_json(list); }
};

Json argument_json(const ProgramArgument& argument) { return std::visit(ArgumentJson(), argument.value); }

Json name_json(const ProgramArgument& argument) {
  return {{"name", std::get<TensorName>(argument.value).name}};
}

Json node_json(const ProgramNode& node) {
  const auto input_json = [](const ProgramNode::Input& input) -> Json {
    return {{"name", input.name},
            {"arg", argument_json(input.argument)},
            {"kind", input.is_keyword ? kKeywordInSchema : kPositionalInSchema}};
  };
  return {{"target", node.target},
          {"inputs", list_json(node.inputs, input_json)},
          {"outputs", list_json(node.outputs, argument_json)},
          {"metadata", Json::object()}};
}

Json input_spec_json(const ProgramInput& input) {
  switch (input.kind) {
    case ProgramInput::Kind::parameter:
      return {{"parameter", {{"arg", name_json(input.argument)}, {"parameter_name", input.target}}}};
    case ProgramInput::Kind::buffer:
      return {{"buffer",
               {{"arg", name_json(input.argument)},
                {"buffer_name", input.target},
                {"persistent", input.is_persistent}}}};
    case ProgramInput::Kind::constant:
      return {
          {"tensor_constant", {{"arg", name_json(input.argument)}, {"tensor_constant_name", input.target}}}};
    case ProgramInput::Kind::user:
      break;
  }
  return {{"user_input", {{"arg", argument_json(input.argument)}}}};
}

Json output_spec_json(const ProgramOutput& output) {
  switch (output.kind) {
    case ProgramOutput::Kind::loss:
      return {{"loss_output", {{"arg", name_json(output.argument)}}}};
    case ProgramOutput::Kind::buffer_mutation:
      return {{"buffer_mutation", {{"arg", name_json(output.argument)}, {"buffer_name", output.target}}}};
    case ProgramOutput::Kind::parameter_mutation:
      return {
          {"parameter_mutation", {{"arg", name_json(output.argument)}, {"parameter_name", output.target}}}};
    case ProgramOutput::Kind::user_input_mutation:
      return {
          {"user_input_mutation", {{"arg", name_json(output.argument)}, {"user_input_name", output.target}}}};
    case ProgramOutput::Kind::user:
      break;
  }
  return {{"user_output", {{"arg", argument_json(output.argument)}}}};
}

// In the form of torch.utils._pytree; the keys of a dict, and the marks of other nestings, are JSON texts.
Json tree_json(const ProgramTree& tree) {
  constexpr const char* kTypes[] = {"", "builtins.tuple", "builtins.list", "builtins.dict"};
  Json parts = list_json(tree.parts, tree_json);
  if (tree.kind == ProgramTree::Kind::leaf)
    return {{"type", nullptr}, {"context", nullptr}, {"children_spec", parts}};
  const bool is_dict = tree.kind == ProgramTree::Kind::dict;
  return {{"type", kTypes[static_cast<std::size_t>(tree.kind)]},
          {"context", is_dict ? Json(tree.names).dump() : "null"},
          {"children_spec", parts}};
}

std::string tree_text(const ProgramTree& tree) { return Json::array({1, tree_json(tree)}).dump(); }

Json graph_json(const ExportedProgram& program) {
  Json tensors = Json::object(), numbers = Json::object();
  for (const auto& [name, tensor] : program.tensors) tensors[name] = tensor_json(tensor);
  for (const auto& [name, number] : program.numbers) numbers[name] = size_json(number);
  const auto argument_of = [](const auto& part) { return argument_json(part.argument); };
  return {{"inputs", list_json(program.inputs, argument_of)},
          {"outputs", list_json(program.outputs, argument_of)},
          {"nodes", list_json(program.nodes, node_json)},
          {"tensor_values", tensors},
          {"sym_int_values", numbers},
          {"sym_bool_values", Json::object()}};
}

Json module_json(const ExportedProgram& program) {
  const Json call = {{"fqn", ""},
                     {"signature",
                      {{"inputs", Json::array()},
                       {"outputs", Json::array()},
                       {"in_spec", tree_text(program.arguments)},
                       {"out_spec", tree_text(program.results)},
                       {"forward_arg_names", program.input_names}}}};
  return {{"graph", graph_json(program)},
          {"signature",
           {{"input_specs", list_json(program.inputs, input_spec_json)},
            {"output_specs", list_json(program.outputs, output_spec_json)}}},
          {"module_call_graph", Json::array({call})}};
}

}  // namespace

std::string json_of(const ExportedProgram& program) {
  Json ranges = Json::object();
  for (const auto& [symbol, range] : program.ranges) {
    const auto& [least, largest] = range;
    ranges[symbol] = {{"min_val", least ? Json(*least) : Json(nullptr)},
                      {"max_val", largest ? Json(*largest) : Json(nullptr)}};
  }
  return Json{{"graph_module", module_json(program)},
              {"opset_version", {{"aten", kAtenOpset}}},
              {"range_constraints", ranges},
              {"schema_version", {{"major", kSchemaMajorWritten}, {"minor", kSchemaMinorWritten}}},
              {"verifiers", {"TRAINING"}},
              {"torch_version", program.torch_version}}
      .dump();
}

namespace {

// `files`: the file name of each storage, such as "weight_3".
std::string json_of(const std::vector<const ProgramWeight*>& weights, const std::vector<std::string>& files) {
  Json config = Json::object();
  for (const ProgramWeight* weight : weights)
    config[weight->name] = {{"path_name", files[weight->storage]},
                            {"is_param", weight->is_parameter},
                            {"use_pickle", false},
                            {"tensor_meta", tensor_json(weight->tensor)}};
  return Json{{"config", config}}.dump();
}

const std::string kRoot = "model/";

bool is_constant_of(const ExportedProgram& program, const ProgramWeight& weight) {
  for (const ProgramInput& input : program.inputs)
    if (input.target == weight.name && input.kind != ProgramInput::Kind::user)
      return input.kind == ProgramInput::Kind::constant || !input.is_persistent;
  return false;
}

}  // namespace

// The entries that the loader requires, and nothing that it does not know.
Pt2Writer::Pt2Writer(const Pt2Parts& parts) : program_(json_of(parts.program)), metadata_(parts.metadata) {
  archive_.add(kRoot + "archive_format", "pt2");
  archive_.add(kRoot + "archive_version", "0");
  archive_.add(kRoot + "byteorder", "little");
  archive_.add(kRoot + ".data/version", "6\n");
  archive_.add(kRoot + "models/model.json", program_);
  add_weights(parts, /*constants=*/false);
  add_weights(parts, /*constants=*/true);
  archive_.add(kRoot + "data/sample_inputs/model.pt", parts.examples);
  for (const auto& [name, text] : metadata_) archive_.add(kRoot + "extra/" + name, text);
  pieces_ = archive_.finish();
}

void Pt2Writer::add_weights(const Pt2Parts& parts, bool constants) {
  const std::string folder = kRoot + (constants ? "data/constants/" : "data/weights/"),
                    file = constants ? "tensor_" : "weight_";
  std::vector<const ProgramWeight*> chosen;
  std::vector<std::string> files(parts.storages.size());
  std::size_t number = 0;
  for (const ProgramWeight& weight : parts.weights) {
    if (is_constant_of(parts.program, weight) != constants) continue;
    chosen.push_back(&weight);
    std::string& name = files[weight.storage];
    if (!name.empty()) continue;  // tied weights
    name = file + std::to_string(number++);
    archive_.add(folder + name, parts.storages[weight.storage]);
  }
  std::string& config = constants ? constants_ : weights_;
  config = json_of(chosen, files);
  archive_.add(folder + (constants ? "model_constants_config.json" : "model_weights_config.json"), config);
}

void Pt2Writer::write(const std::filesystem::path& path) const {
  with_errors_as<CheckpointError>([&] { write_file_atomically(path, pieces_); });
}

}  // namespace kindling
