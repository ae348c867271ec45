#include "formats/pt2_nodes.h"

#include <utility>

#include "formats/pt2_arguments.h"
#include "kindling/base/json.h"

namespace kindling {
namespace {

using Names = std::map<std::string, ProgramArgument>;

constexpr std::string_view kGradientMode = "torch.ops.higher_order.wrap_with_set_grad_enabled";
constexpr std::size_t kMaxDepth = 64;  // of such parts within each other

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

// What a name stands for where a part is read: itself in the outermost graph, else what the part was given,
// or the name with the part's in front.
class GraphReader {
 public:
  GraphReader(ExportedProgram& program, std::string prefix, std::optional<bool> with_gradients)
      : program_(program), prefix_(std::move(prefix)), with_gradients_(with_gradients) {}

  Names names{};

  void read(const JsonView& graph, std::size_t depth) {
    if (depth > kMaxDepth) graph.refuse("parts are nested too deeply");
    for (const auto& [name, meta] : graph["tensor_values"].members())
      if (own(name)) program_.tensors.emplace(prefix_ + name, tensor_of(meta));
    for (const auto& [name, number] : graph["sym_int_values"].members())
      if (own(name)) program_.numbers.emplace(prefix_ + name, size_of(number));
    for (const JsonView& node : graph["nodes"].items())
      if (node["target"].text() == kGradientMode)
        read_part(node, depth);
      else
        add(node_of(node));
  }

  ProgramArgument here(const ProgramArgument& argument) const { return renamed(argument, names); }

 private:
  bool own(const std::string& name) const { return !names.contains(name); }

  void add(ProgramNode node) {
    node.with_gradients = with_gradients_;
    for (ProgramNode::Input& input : node.inputs) input.argument = here(input.argument);
    if (!prefix_.empty())
      for (ProgramArgument& output : node.outputs) output = new_name(output);
    program_.nodes.push_back(std::move(node));
  }

  // A value that a part makes gets the part's name in front, here and in what follows.
  ProgramArgument new_name(ProgramArgument made) {
    const auto rename = [&](auto value) {
      const std::string name = value.name;
      value.name = prefix_ + name;
      names[name] = {value};
      return ProgramArgument{value};
    };
    if (const auto* tensor = std::get_if<TensorName>(&made.value)) return rename(*tensor);
    if (const auto* number = std::get_if<NumberName>(&made.value)) return rename(*number);
    if (auto* list = std::get_if<ProgramList>(&made.value))
      for (ProgramArgument& item : list->items) item = new_name(item);
    return made;
  }

  // wrap_with_set_grad_enabled(mode, graph, what it is given …).
  void read_part(const JsonView& node, std::size_t depth) {
    const auto inputs = node["inputs"].items();
    if (inputs.size() < 2 || !inputs[1]["arg"].has("as_graph")) node.refuse("it has no graph");
    const ProgramArgument mode = argument_of(inputs[0]["arg"]);
    const bool* const gradients = std::get_if<bool>(&mode.value);
    if (gradients == nullptr) node.refuse("its mode is no boolean");
    const JsonView part = inputs[1]["arg"]["as_graph"], graph = part["graph"];
    GraphReader inner(program_, prefix_ + part["name"].text() + ".", *gradients);
    const auto takes = graph["inputs"].items(), gives = graph["outputs"].items(),
               results = node["outputs"].items();
    if (takes.size() != inputs.size() - 2 || gives.size() != results.size())
      node.refuse("its graph takes or gives another number of values");
    for (std::size_t i = 0; i < takes.size(); ++i)
      inner.names[name_in(takes[i])] = here(argument_of(inputs[i + 2]["arg"]));
    inner.read(graph, depth + 1);
    for (std::size_t i = 0; i < gives.size(); ++i)
      names[name_in(results[i])] = inner.here(argument_of(gives[i]));
  }

  static std::string name_in(const JsonView& value) {
    const ProgramArgument argument = argument_of(value);
    if (const auto* tensor = std::get_if<TensorName>(&argument.value)) return tensor->name;
    if (const auto* number = std::get_if<NumberName>(&argument.value)) return number->name;
    value.refuse("it is no value with a name");
  }

  ExportedProgram& program_;
  std::string prefix_;
  std::optional<bool> with_gradients_;
};

}  // namespace

ProgramArgument renamed(const ProgramArgument& argument, const Names& names) {
  const auto known = [&](const std::string& name) {
    const auto found = names.find(name);
    return found == names.end() ? argument : found->second;
  };
  if (const auto* tensor = std::get_if<TensorName>(&argument.value)) return known(tensor->name);
  if (const auto* number = std::get_if<NumberName>(&argument.value)) return known(number->name);
  const auto* list = std::get_if<ProgramList>(&argument.value);
  if (list == nullptr) return argument;
  ProgramList items{.of = list->of, .items = {}};
  for (const ProgramArgument& item : list->items) items.items.push_back(renamed(item, names));
  return {std::move(items)};
}

std::map<std::string, ProgramArgument> read_nodes(const JsonView& graph, ExportedProgram& program) {
  GraphReader reader(program, "", std::nullopt);
  reader.read(graph, 0);
  return std::move(reader.names);
}

}  // namespace kindling
