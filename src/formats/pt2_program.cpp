#include "formats/pt2_program.h"

#include <array>
#include <utility>

#include "kindling/base/json.h"

namespace kindling {
namespace {

constexpr std::int64_t kSchemaMajor = 8;
constexpr std::size_t kMaxProgramRank = 64;  // LibTorch's own limit
constexpr std::int64_t kStridedLayout = 7;

ProgramType type_of(const JsonView& value) {
  const std::int64_t number = value.integer();
  if (number < static_cast<std::int64_t>(ProgramType::uint8) ||
      number > static_cast<std::int64_t>(ProgramType::bfloat16))
    value.refuse("the dtype " + std::to_string(number) + " is not supported",
                 "one of the types up to 64 bits, bool and bfloat16");
  return static_cast<ProgramType>(number);
}

ProgramMemoryFormat memory_format_of(const JsonView& value) {
  const std::int64_t number = value.integer();
  if (number < 1 || number > 4) value.refuse("there is no such memory format");
  return static_cast<ProgramMemoryFormat>(number);
}

StridedLayout layout_of(const JsonView& value) {
  if (value.integer() != kStridedLayout) value.refuse("the layout is not strided", "a dense tensor");
  return {};
}

ProgramDevice device_of(const JsonView& value) {
  ProgramDevice device{.type = value["type"].text()};
  if (value.has("index")) device.index = value["index"].integer();
  return device;
}

ProgramSize size_of(const JsonView& value) {
  const auto [kind, given] = value.only_member();
  if (kind == "as_int") return {.number = given.integer()};
  if (kind != "as_expr") value.refuse("it is neither an integer nor an expression");
  ProgramSize size{.expression = given["expr_str"].text()};
  if (given.has("hint")) {
    const auto [hint, number] = given["hint"].only_member();
    if (hint == "as_int") size.number = number.integer();
  }
  return size;
}

NumberName number_name(NumberName::Kind kind, const JsonView& value) {
  return {.kind = kind, .name = value["as_name"].text()};
}

// Either the name of a number that the program computes, or the number itself.
ProgramArgument symbolic(NumberName::Kind kind, const JsonView& value) {
  if (value.has("as_name")) return {number_name(kind, value)};
  if (kind == NumberName::Kind::boolean) return {value["as_bool"].boolean()};
  if (kind == NumberName::Kind::floating) return {value["as_float"].number()};
  return {value["as_int"].integer()};
}

ProgramArgument optional_tensor(const JsonView& value) {
  if (value.has("as_tensor")) return {TensorName{value["as_tensor"]["name"].text()}};
  return {std::monostate{}};
}

template <class Read>
ProgramArgument list_of(ProgramList::Of of, const JsonView& value, Read read) {
  ProgramList list{.of = of, .items = {}};
  for (const JsonView& item : value.items()) list.items.push_back({read(item)});
  return {std::move(list)};
}

using Reader = ProgramArgument (*)(const JsonView&);
using Of = ProgramList::Of;
using Number = NumberName::Kind;

// What an argument of an operator may be.
constexpr std::array<std::pair<std::string_view, Reader>, 20> kArgumentReaders{{
    {"as_none", [](const JsonView&) { return ProgramArgument{}; }},
    {"as_tensor", [](const JsonView& v) { return ProgramArgument{TensorName{v["name"].text()}}; }},
    {"as_tensors",
     [](const JsonView& v) {
       return list_of(Of::tensors, v, [](const JsonView& item) { return TensorName{item["name"].text()}; });
     }},
    {"as_optional_tensors",
     [](const JsonView& v) {
       ProgramList list{.of = Of::optional_tensors, .items = {}};
       for (const JsonView& item : v.items()) list.items.push_back(optional_tensor(item));
       return ProgramArgument{std::move(list)};
     }},
    {"as_optional_tensor", &optional_tensor},
    {"as_int", [](const JsonView& v) { return ProgramArgument{v.integer()}; }},
    {"as_ints",
     [](const JsonView& v) {
       return list_of(Of::integers, v, [](const JsonView& item) { return item.integer(); });
     }},
    {"as_float", [](const JsonView& v) { return ProgramArgument{v.number()}; }},
    {"as_floats",
     [](const JsonView& v) {
       return list_of(Of::floats, v, [](const JsonView& item) { return item.number(); });
     }},
    {"as_bool", [](const JsonView& v) { return ProgramArgument{v.boolean()}; }},
    {"as_bools",
     [](const JsonView& v) {
       return list_of(Of::booleans, v, [](const JsonView& item) { return item.boolean(); });
     }},
    {"as_string", [](const JsonView& v) { return ProgramArgument{v.text()}; }},
    {"as_sym_int", [](const JsonView& v) { return symbolic(Number::integer, v); }},
    {"as_sym_float", [](const JsonView& v) { return symbolic(Number::floating, v); }},
    {"as_sym_bool", [](const JsonView& v) { return symbolic(Number::boolean, v); }},
    {"as_sym_ints",
     [](const JsonView& v) {
       ProgramList list{.of = Of::symbolic_integers, .items = {}};
       for (const JsonView& item : v.items()) list.items.push_back(symbolic(Number::integer, item));
       return ProgramArgument{std::move(list)};
     }},
    {"as_scalar_type", [](const JsonView& v) { return ProgramArgument{type_of(v)}; }},
    {"as_memory_format", [](const JsonView& v) { return ProgramArgument{memory_format_of(v)}; }},
    {"as_layout", [](const JsonView& v) { return ProgramArgument{layout_of(v)}; }},
    {"as_device", [](const JsonView& v) { return ProgramArgument{device_of(v)}; }},
}};

ProgramArgument argument_of(const JsonView& value) {
  const auto [kind, given] = value.only_member();
  for (const auto& [name, read] : kArgumentReaders)
    if (name == kind) return read(given);
  if (kind == "as_graph")
    value.refuse("it is a part of control flow (cond, while_loop, …)", "a program without control flow",
                 "export a forward whose branches do not depend on values of tensors");
  value.refuse("arguments of the kind " + json_string(kind) + " are not supported");
}

// "L__self__,,M;L__self__net_1,net.1,torch.nn.modules.linear.Linear": the innermost layer, "net.1".
std::string layer_in(const std::string& stack) {
  if (stack.starts_with("_empty_nn_module_stack")) return "";
  const std::size_t last = stack.rfind(';') == std::string::npos ? 0 : stack.rfind(';') + 1;
  const std::size_t begin = stack.find(',', last);
  if (begin == std::string::npos) return "";
  return stack.substr(begin + 1, stack.find(',', begin + 1) - begin - 1);
}

ProgramNode node_of(const JsonView& value) {
  ProgramNode node{.target = value["target"].text(), .inputs = {}, .outputs = {}};
  if (value.has("metadata") && value["metadata"].has("nn_module_stack"))
    node.layer = layer_in(value["metadata"]["nn_module_stack"].text());
  constexpr std::int64_t kKeyword = 2;
  for (const JsonView& input : value["inputs"].items())
    node.inputs.push_back({.name = input["name"].text(),
                           .argument = argument_of(input["arg"]),
                           .is_keyword = input.has("kind") && input["kind"].integer() == kKeyword});
  for (const JsonView& output : value["outputs"].items()) node.outputs.push_back(argument_of(output));
  return node;
}

ProgramArgument tensor_named(const JsonView& value) { return {TensorName{value["name"].text()}}; }

ProgramArgument constant_of(const JsonView& value) {
  const auto [kind, given] = value.only_member();
  if (kind == "as_none") return {};
  if (kind == "as_int") return {given.integer()};
  if (kind == "as_float") return {given.number()};
  if (kind == "as_bool") return {given.boolean()};
  if (kind == "as_string") return {given.text()};
  value.refuse("a constant of this kind is not supported");
}

ProgramInput input_of(const JsonView& value) {
  using Kind = ProgramInput::Kind;
  const auto [kind, given] = value.only_member();
  if (kind == "user_input") return {.kind = Kind::user, .argument = argument_of(given["arg"])};
  if (kind == "constant_input") return {.kind = Kind::user, .argument = constant_of(given["value"])};
  if (kind == "parameter")
    return {Kind::parameter, tensor_named(given["arg"]), given["parameter_name"].text()};
  if (kind == "buffer")
    return {Kind::buffer, tensor_named(given["arg"]), given["buffer_name"].text(),
            !given.has("persistent") || given["persistent"].boolean()};
  if (kind == "tensor_constant")
    return {Kind::constant, tensor_named(given["arg"]), given["tensor_constant_name"].text()};
  value.refuse("an input of the kind " + json_string(kind) + " is not supported",
               "parameters, buffers, constants and user inputs",
               "export a model without objects of its own kinds");
}

ProgramOutput output_of(const JsonView& value) {
  using Kind = ProgramOutput::Kind;
  const auto [kind, given] = value.only_member();
  if (kind == "user_output") return {.kind = Kind::user, .argument = argument_of(given["arg"])};
  if (kind == "loss_output") return {.kind = Kind::loss, .argument = tensor_named(given["arg"])};
  if (kind == "buffer_mutation")
    return {Kind::buffer_mutation, tensor_named(given["arg"]), given["buffer_name"].text()};
  if (kind == "parameter_mutation")
    return {Kind::parameter_mutation, tensor_named(given["arg"]), given["parameter_name"].text()};
  if (kind == "user_input_mutation")
    return {Kind::user_input_mutation, tensor_named(given["arg"]), given["user_input_name"].text()};
  value.refuse("an output of the kind " + json_string(kind) + " is not supported",
               "a program of a forward, without its gradients", "export the model, not its training step");
}

ProgramTree tree_of(const JsonView& value) {
  if (!value.has("type")) return {};
  const std::string& type = value["type"].text();
  ProgramTree tree;
  if (type == "builtins.tuple" || type == "collections.namedtuple")
    tree.kind = ProgramTree::Kind::tuple;
  else if (type == "builtins.list")
    tree.kind = ProgramTree::Kind::list;
  else if (type == "builtins.dict" || type == "collections.OrderedDict")
    tree.kind = ProgramTree::Kind::dict;
  else
    value.refuse("a nesting by " + json_string(type) + " is not supported", "tuples, lists and dicts");
  for (const JsonView& part : value["children_spec"].items()) tree.parts.push_back(tree_of(part));
  if (tree.kind != ProgramTree::Kind::dict) return tree;
  const nlohmann::json context = parse_json(value["context"].text(), "the keys of a dict");
  for (const JsonView& key : JsonView(context, "the keys of a dict").items())
    tree.names.push_back(key.is_integer() ? std::to_string(key.integer()) : key.text());
  if (tree.names.size() != tree.parts.size()) value.refuse("a dict has other keys than parts");
  return tree;
}

// "[1, {…}]", a JSON text of its own.
ProgramTree tree_in(const JsonView& text) {
  const nlohmann::json versioned = parse_json(text.text(), "a tree of arguments");
  const auto parts = JsonView(versioned, "a tree of arguments").items();
  if (parts.size() != 2 || parts[0].integer() != 1) text.refuse("the tree is of an unknown version", "1");
  return tree_of(parts[1]);
}

void read_calls(const JsonView& calls, ExportedProgram& program) {
  for (const JsonView& entry : calls.items()) {
    if (!entry["fqn"].text().empty() || !entry.has("signature")) continue;
    const JsonView signature = entry["signature"];
    program.arguments = tree_in(signature["in_spec"]);
    program.results = tree_in(signature["out_spec"]);
    if (!signature.has("forward_arg_names")) continue;
    for (const JsonView& name : signature["forward_arg_names"].items())
      program.input_names.push_back(name.text());
  }
}

void read_ranges(const JsonView& ranges, ExportedProgram& program) {
  for (const auto& [symbol, range] : ranges.members()) {
    auto& [least, largest] = program.ranges[symbol];
    if (range.has("min_val")) least = range["min_val"].integer();
    if (range.has("max_val")) largest = range["max_val"].integer();
  }
}

void check_version(const JsonView& version) {
  const std::int64_t major = version["major"].integer();
  if (major != kSchemaMajor)
    version.refuse("the schema of the program has the major version " + std::to_string(major),
                   std::to_string(kSchemaMajor), "save it again with PyTorch 2.11 to 2.13");
}

}  // namespace

ProgramTensor tensor_of(const JsonView& meta) {
  layout_of(meta["layout"]);
  ProgramTensor tensor{.type = type_of(meta["dtype"]),
                       .offset = size_of(meta["storage_offset"]),
                       .requires_grad = meta["requires_grad"].boolean(),
                       .device = device_of(meta["device"])};
  for (const JsonView& size : meta["sizes"].items()) tensor.sizes.push_back(size_of(size));
  for (const JsonView& stride : meta["strides"].items()) tensor.strides.push_back(size_of(stride));
  if (tensor.sizes.size() != tensor.strides.size() || tensor.sizes.size() > kMaxProgramRank)
    meta.refuse("sizes and strides do not fit");
  return tensor;
}

ExportedProgram program_of(const JsonView& model) {
  check_version(model["schema_version"]);
  const JsonView module = model["graph_module"], graph = module["graph"];
  ExportedProgram program;
  for (const JsonView& input : module["signature"]["input_specs"].items())
    program.inputs.push_back(input_of(input));
  for (const JsonView& output : module["signature"]["output_specs"].items())
    program.outputs.push_back(output_of(output));
  for (const JsonView& node : graph["nodes"].items()) program.nodes.push_back(node_of(node));
  for (const auto& [name, meta] : graph["tensor_values"].members())
    program.tensors.emplace(name, tensor_of(meta));
  for (const auto& [name, number] : graph["sym_int_values"].members())
    program.numbers.emplace(name, size_of(number));
  read_ranges(model["range_constraints"], program);
  read_calls(module["module_call_graph"], program);
  if (model.has("torch_version")) program.torch_version = model["torch_version"].text();
  return program;
}

}  // namespace kindling
