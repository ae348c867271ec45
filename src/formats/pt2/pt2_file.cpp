#include "formats/pt2/pt2_file.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "formats/json_view.h"
#include "formats/pt2/exported_program.h"
#include "formats/pt2/pt2_arguments.h"
#include "formats/tensor_types.h"
#include "formats/zip/zip_writer.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/json.h"

namespace kindling {
namespace {

using Names = std::map<std::string, ProgramArgument>;

constexpr std::string_view kGradientMode = "torch.ops.higher_order.wrap_with_set_grad_enabled",
                           kAutocast = "torch.ops.higher_order.wrap_with_autocast";
constexpr std::size_t kMaxDepth = 64;  // of nested subgraphs

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

// Returns the argument with names replaced.
ProgramArgument renamed(const ProgramArgument& argument, const Names& names) {
  const auto known = [&](const std::string& name) {
    const auto found = names.find(name);
    return found == names.end() ? argument : found->second;
  };
  if (const auto* tensor = std::get_if<TensorName>(&argument.value)) return known(tensor->name);
  if (const auto* number = std::get_if<NumberName>(&argument.value)) return known(number->name);
  const auto* list = std::get_if<ProgramList>(&argument.value);
  if (list == nullptr) return argument;
  ProgramList items{.element = list->element, .items = {}};
  for (const ProgramArgument& item : list->items) items.items.push_back(renamed(item, names));
  return {std::move(items)};
}

// What a part of the forward sets for its calls.
struct CallModes {
  std::optional<bool> with_gradients{};
  std::vector<std::string> autocast_off{};
};

// autocast(device type, dtype, enabled, cache, graph, arguments …).
bool disables_autocast(const JsonView& node) {
  const auto inputs = node["inputs"].items();
  return inputs.size() > 4 && inputs[0]["arg"].has("as_string") && inputs[2]["arg"].has("as_bool") &&
         !inputs[2]["arg"]["as_bool"].boolean();
}

// The value that a name refers to in a subgraph: itself in the outermost graph, else the value passed to the
// subgraph, or the name with the subgraph's prefix.
class GraphReader {
 public:
  GraphReader(ExportedProgram& program, std::string prefix, CallModes modes)
      : program_(program), prefix_(std::move(prefix)), modes_(std::move(modes)) {}

  Names names{};

  void read(const JsonView& graph, std::size_t depth) {
    if (depth > kMaxDepth) graph.refuse("subgraphs are nested too deeply");
    for (const auto& [name, meta] : graph["tensor_values"].members())
      if (is_local(name)) program_.tensors.emplace(prefix_ + name, tensor_of(meta));
    for (const auto& [name, number] : graph["sym_int_values"].members())
      if (is_local(name)) program_.numbers.emplace(prefix_ + name, size_of(number));
    for (const JsonView& node : graph["nodes"].items())
      if (node["target"].text() == kGradientMode)
        read_part(node, 1, with_gradient_mode(node), depth);
      else if (node["target"].text() == kAutocast && disables_autocast(node))
        read_part(node, 4, without_autocast(node), depth);
      else
        add(node_of(node));
  }

  ProgramArgument resolved(const ProgramArgument& argument) const { return renamed(argument, names); }

 private:
  bool is_local(const std::string& name) const { return !names.contains(name); }

  void add(ProgramNode node) {
    node.with_gradients = modes_.with_gradients;
    node.autocast_off = modes_.autocast_off;
    for (ProgramNode::Input& input : node.inputs) input.argument = resolved(input.argument);
    if (!prefix_.empty())
      for (ProgramArgument& output : node.outputs) output = new_name(output);
    program_.nodes.push_back(std::move(node));
  }

  // A value that a subgraph computes gets the subgraph's name as a prefix, here and in later calls.
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

  // wrap_with_set_grad_enabled(mode, graph, arguments …).
  CallModes with_gradient_mode(const JsonView& node) const {
    const auto inputs = node["inputs"].items();
    if (inputs.empty()) node.refuse("it has no mode");
    const ProgramArgument mode = argument_of(inputs[0]["arg"]);
    const bool* const gradients = std::get_if<bool>(&mode.value);
    if (gradients == nullptr) node.refuse("its mode is not a boolean");
    CallModes modes = modes_;
    modes.with_gradients = *gradients;
    return modes;
  }

  CallModes without_autocast(const JsonView& node) const {
    CallModes modes = modes_;
    modes.autocast_off.push_back(node["inputs"].items()[0]["arg"]["as_string"].text());
    return modes;
  }

  // Reads a call of a graph, which is argument number `graph_at`; the graph's arguments follow it.
  void read_part(const JsonView& node, std::size_t graph_at, CallModes modes, std::size_t depth) {
    const auto inputs = node["inputs"].items();
    if (inputs.size() <= graph_at || !inputs[graph_at]["arg"].has("as_graph")) node.refuse("it has no graph");
    const std::size_t first = graph_at + 1;
    const JsonView part = inputs[graph_at]["arg"]["as_graph"], graph = part["graph"];
    GraphReader inner(program_, prefix_ + part["name"].text() + ".", std::move(modes));
    const auto graph_inputs = graph["inputs"].items(), graph_outputs = graph["outputs"].items(),
               results = node["outputs"].items();
    if (graph_inputs.size() != inputs.size() - first || graph_outputs.size() != results.size())
      node.refuse("its graph has another number of inputs or outputs");
    for (std::size_t i = 0; i < graph_inputs.size(); ++i)
      inner.names[name_in(graph_inputs[i])] = resolved(argument_of(inputs[i + first]["arg"]));
    inner.read(graph, depth + 1);
    for (std::size_t i = 0; i < graph_outputs.size(); ++i)
      names[name_in(results[i])] = inner.resolved(argument_of(graph_outputs[i]));
  }

  static std::string name_in(const JsonView& value) {
    const ProgramArgument argument = argument_of(value);
    if (const auto* tensor = std::get_if<TensorName>(&argument.value)) return tensor->name;
    if (const auto* number = std::get_if<NumberName>(&argument.value)) return number->name;
    value.refuse("it is not a named value");
  }

  ExportedProgram& program_;
  std::string prefix_;
  CallModes modes_;
};

// Reads the calls of a program's graph into program.nodes, and the properties of their values into
// program.tensors and program.numbers. The parts of a forward under torch.no_grad(), and with autocast off,
// are subgraphs in the file; their calls are inlined here. Returns the new names of the values that subgraphs
// return.
Names read_nodes(const JsonView& graph, ExportedProgram& program) {
  GraphReader reader(program, "", {});
  reader.read(graph, 0);
  return std::move(reader.names);
}

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
               "parameters, buffers, constants and user inputs", "export a model without custom objects");
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
               "a program of the forward only, without gradients", "export the model, not its training step");
}

ProgramTree tree_of(const JsonView& value);

// A class that its library has registered, such as the outputs of transformers, whose context is the list of
// their fields: ["loss", "logits"]. Another context stays unknown; the parts are then those of a tuple.
ProgramTree tree_of_class(const JsonView& value) {
  ProgramTree tree{.kind = ProgramTree::Kind::tuple};
  for (const JsonView& part : value["children_spec"].items()) tree.parts.push_back(tree_of(part));
  if (!value.has("context")) return tree;
  const nlohmann::json fields =
      nlohmann::json::parse(value["context"].text(), nullptr, /*allow_exceptions=*/false);
  const bool are_names = fields.is_array() && fields.size() == tree.parts.size() &&
                         std::ranges::all_of(fields, [](const auto& field) { return field.is_string(); });
  if (!are_names) return tree;
  tree.kind = ProgramTree::Kind::dict;
  for (const auto& field : fields) tree.names.push_back(field.get<std::string>());
  return tree;
}

ProgramTree tree_of(const JsonView& value) {
  if (!value.has("type")) return {};
  const std::string type = value["type"].text();
  ProgramTree tree;
  if (type == "builtins.tuple" || type == "collections.namedtuple")
    tree.kind = ProgramTree::Kind::tuple;
  else if (type == "builtins.list")
    tree.kind = ProgramTree::Kind::list;
  else if (type == "builtins.dict" || type == "collections.OrderedDict")
    tree.kind = ProgramTree::Kind::dict;
  else
    return tree_of_class(value);
  for (const JsonView& part : value["children_spec"].items()) tree.parts.push_back(tree_of(part));
  if (tree.kind != ProgramTree::Kind::dict) return tree;
  const nlohmann::json context = parse_json(value["context"].text(), "the keys of a dict");
  for (const JsonView& key : JsonView(context, "the keys of a dict").items())
    tree.names.push_back(key.is_integer() ? std::to_string(key.integer()) : key.text());
  if (tree.names.size() != tree.parts.size()) value.refuse("a dict has different numbers of keys and parts");
  return tree;
}

// "[1, {…}]", a separate JSON text.
ProgramTree tree_in(const JsonView& text) {
  const nlohmann::json versioned = parse_json(text.text(), "a tree of arguments");
  const auto parts = JsonView(versioned, "a tree of arguments").items();
  if (parts.size() != 2 || parts[0].integer() != 1) text.refuse("the version of the tree is unknown", "1");
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
    version.refuse("the program's schema has the major version " + std::to_string(major),
                   std::to_string(kSchemaMajor), "save it again with PyTorch 2.11 to 2.15");
}

// Throws CheckpointError for deviations from the schema and, with the layer, for programs that cannot be
// trained here: control flow, custom objects, custom layouts.
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

constexpr std::size_t kMaxJsonBytes = std::size_t{1} << 28;  // a large model's program takes about 10 MB
constexpr std::string_view kFormatEntry = "archive_format";

std::string entry_of_program(const std::string& name) { return "models/" + name + ".json"; }

std::size_t bytes_of(ProgramType type) {
  if (type == ProgramType::complex32) return 4;
  if (type == ProgramType::complex128) return 16;
  return tensor_type_with(&TensorTypeRow::program, static_cast<std::uint8_t>(type))->bytes;
}

// Throws unless all values are within `storage_bytes`; no intermediate result exceeds 64 bits.
bool fits(const ProgramTensor& tensor, std::size_t storage_bytes) {
  const std::size_t room = storage_bytes / bytes_of(tensor.type);
  const auto is_small = [&](const ProgramSize& size) {
    return size.expression.empty() && size.number >= 0 && static_cast<std::uint64_t>(size.number) <= room;
  };
  const auto is_empty = [](const ProgramSize& size) { return size.number == 0 && size.expression.empty(); };
  if (!is_small(tensor.offset)) return false;
  const auto is_number = [](const ProgramSize& size) { return size.expression.empty() && size.number >= 0; };
  if (std::ranges::any_of(tensor.sizes,
                          is_empty))  // no stride is used; PyTorch gives such tensors strides of 1
    return std::ranges::all_of(tensor.sizes, is_small) && std::ranges::all_of(tensor.strides, is_number);
  std::uint64_t last = static_cast<std::uint64_t>(tensor.offset.number);
  for (std::size_t i = 0; i < tensor.sizes.size(); ++i) {
    const ProgramSize &size = tensor.sizes[i], &stride = tensor.strides[i];
    if (!size.expression.empty() || size.number < 0 || !stride.expression.empty() || stride.number < 0)
      return false;
    if (size.number == 1) continue;
    if (!is_small(size) || !is_small(stride)) return false;
    const auto steps = static_cast<std::uint64_t>(size.number - 1),
               step = static_cast<std::uint64_t>(stride.number);
    if (step > 0 && steps > room / step) return false;
    last += steps * step;
    if (last > room) return false;
  }
  return last < room;
}

std::string root_of_pt2(const ZipArchive& archive, const std::string& place) {
  for (const ZipEntry& entry : archive.entries())
    if (entry.name.ends_with(kFormatEntry) &&
        entry.name.find('/') + kFormatEntry.size() + 1 == entry.name.size())
      return entry.name.substr(0, entry.name.size() - kFormatEntry.size());
  throw CheckpointError({.place = place,
                         .found = "the archive has no entry FOLDER/" + std::string(kFormatEntry),
                         .wanted = "a file of torch.export.save",
                         .remedy = "to load weights without a program, use a model's init_weights"});
}

}  // namespace

Pt2File::Pt2File(const std::filesystem::path& path, const std::string& program)
    : Pt2File(source_of(path), path.string(), program) {}

Pt2File Pt2File::of_bytes(std::string bytes, const std::string& place) {
  return {source_of_bytes(std::move(bytes)), place, "model"};
}

Pt2File::Pt2File(ByteSource source, const std::string& place, const std::string& program)
    : archive_(std::move(source), place), place_(place), root_(root_of_pt2(archive_, place)) {
  check_format();
  const std::string where = place_ + ", " + entry_of_program(program);
  const nlohmann::json model = parse_json(text_of(entry_of_program(program)), where);
  program_ = program_of(JsonView(model, where));
  weights_ = read_weights("data/weights/", program + "_weights_config.json");
  constants_ = read_weights("data/constants/", program + "_constants_config.json");
}

bool Pt2File::has_program(const std::string& name) const {
  return archive_.find(root_ + entry_of_program(name)) != nullptr;
}

void Pt2File::check_format() const {
  const auto want = [&](std::string_view entry, std::string_view wanted) {
    const std::string found = text_of(entry);
    if (found != wanted)
      throw CheckpointError({.place = place_,
                             .found = std::string(entry) + " is " + json_string(found.substr(0, 100)),
                             .wanted = json_string(wanted),
                             .remedy = "save the program with torch.export.save of PyTorch 2.11 to 2.15"});
  };
  want(kFormatEntry, "pt2");
  want("archive_version", "0");
  if (archive_.find(root_ + "byteorder") != nullptr) want("byteorder", "little");
}

std::string Pt2File::text_of(std::string_view name) const {
  const ZipEntry* const entry = archive_.find(root_ + std::string(name));
  if (entry == nullptr)
    throw CheckpointError({.place = place_,
                           .found = "the archive has no entry " + std::string(name),
                           .wanted = "a file of torch.export.save with a program named \"model\"",
                           .remedy = "save it again with torch.export.save"});
  return archive_.text(*entry, kMaxJsonBytes);
}

std::size_t Pt2File::storage_at(const std::string& path) {
  const ZipEntry* const entry = archive_.find(path);
  if (entry == nullptr)
    throw CheckpointError({.place = place_, .found = "the archive has no entry " + json_string(path)});
  const auto place = static_cast<std::size_t>(entry - archive_.entries().data());
  const auto known = std::ranges::find(storages_, place);
  if (known == storages_.end()) {
    storages_.push_back(place);
    return storages_.size() - 1;
  }
  return static_cast<std::size_t>(known - storages_.begin());
}

std::vector<ProgramWeight> Pt2File::read_weights(const std::string& folder, const std::string& config) {
  const std::string where = place_ + ", " + folder + config;
  const nlohmann::json parsed = parse_json(text_of(folder + config), where);
  std::vector<ProgramWeight> weights;
  for (const auto& [name, payload] : JsonView(parsed, where)["config"].members()) {
    if (payload["use_pickle"].boolean())
      payload.refuse("it is saved as a pickle, which could execute code", "plain tensors",
                     "export a model without custom objects or tensor subclasses");
    weights.push_back({.name = name,
                       .tensor = tensor_of(payload["tensor_meta"]),
                       .is_parameter = payload["is_param"].boolean(),
                       .storage = storage_at(root_ + folder + payload["path_name"].text())});
    // An entry may be longer than its tensor: Python saves the whole storage of a slice.
    if (storage_bytes(weights.back().storage) % bytes_of(weights.back().tensor.type) != 0)
      payload.refuse("its entry has " + std::to_string(storage_bytes(weights.back().storage)) +
                         " bytes, which is not a whole number of values",
                     "a multiple of " + std::to_string(bytes_of(weights.back().tensor.type)));
    if (!fits(weights.back().tensor, storage_bytes(weights.back().storage)))
      payload.refuse("its values are not within the " +
                     std::to_string(storage_bytes(weights.back().storage)) + " bytes of its entry");
  }
  return weights;
}

std::map<std::string, std::string> Pt2File::extra_files() const {
  const std::string folder = root_ + "extra/";
  std::map<std::string, std::string> files;
  for (const ZipEntry& entry : archive_.entries())
    if (entry.name.starts_with(folder) && entry.name.size() > folder.size())
      files[entry.name.substr(folder.size())] = archive_.text(entry, kMaxJsonBytes);
  return files;
}

void Pt2File::read_storage(std::size_t storage, void* out) const { archive_.read(entry_of(storage), out); }

void Pt2File::write_copy(const std::filesystem::path& path,
                         std::span<const std::string_view> storages) const {
  ZipWriter writer;
  std::vector<std::string> copied;
  copied.reserve(archive_.entries().size());
  for (std::size_t i = 0; i < archive_.entries().size(); ++i) {
    const ZipEntry& entry = archive_.entries()[i];
    const auto storage = std::ranges::find(storages_, i);
    if (storage != storages_.end()) {
      writer.add(entry.name, storages[static_cast<std::size_t>(storage - storages_.begin())]);
    } else {
      archive_.read(entry, copied.emplace_back(entry.size, '\0').data());
      writer.add(entry.name, copied.back());
    }
  }
  write_file_atomically(path, writer.finish());
}

}  // namespace kindling
