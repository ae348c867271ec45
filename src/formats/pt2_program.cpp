#include "formats/pt2_program.h"

#include <utility>

#include "formats/pt2_arguments.h"
#include "formats/pt2_nodes.h"
#include "kindling/base/json.h"

namespace kindling {
namespace {

constexpr std::int64_t kSchemaMajor = 8;

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

ExportedProgram program_of(const JsonView& model) {
  check_version(model["schema_version"]);
  const JsonView module = model["graph_module"], graph = module["graph"];
  ExportedProgram program;
  for (const JsonView& input : module["signature"]["input_specs"].items())
    program.inputs.push_back(input_of(input));
  for (const JsonView& output : module["signature"]["output_specs"].items())
    program.outputs.push_back(output_of(output));
  const auto names = read_nodes(graph, program);
  for (ProgramOutput& output : program.outputs) output.argument = renamed(output.argument, names);
  read_ranges(model["range_constraints"], program);
  read_calls(module["module_call_graph"], program);
  if (model.has("torch_version")) program.torch_version = model["torch_version"].text();
  return program;
}

}  // namespace kindling
