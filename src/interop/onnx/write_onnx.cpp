#include "interop/onnx/write_onnx.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "formats/pt2/program_weight.h"
#include "formats/pt2/pt2_file.h"
#include "interop/onnx/onnx_call.h"
#include "interop/onnx/onnx_graph.h"
#include "interop/onnx/onnx_operators.h"
#include "interop/onnx/onnx_values.h"
#include "interop/run/grouped_product.h"
#include "interop/run/listed_operators.h"
#include "interop/run/loaded_weights.h"
#include "interop/run/program_call.h"
#include "interop/run/program_types.h"
#include "kindling/base/error.h"
#include "kindling/base/json.h"
#include "kindling/base/suggest.h"
#include "kindling/base/text.h"
#include "kindling/interop/export_program.h"

namespace kindling {
namespace {

// Converts a program to a graph, call by call. An in-place operation creates a new value of the graph, which
// replaces the old one wherever the program refers to the same tensor.
class OnnxProgram {
 public:
  // `size_names`: names for symbols; others keep their own.
  OnnxProgram(const ExportedProgram& program, const ProgramWeights& weights,
              const std::map<std::string, std::string>& size_names, OnnxGraph& graph);

 private:
  void add_inputs(const ProgramWeights& weights);
  void add_call(std::size_t number);
  void add_operator(std::size_t number, const std::string& name, const c10::FunctionSchema& schema);
  bool fold_constants(std::size_t number, const c10::FunctionSchema& schema);
  bool can_change(std::size_t number, const std::string& written) const;
  std::set<std::string> write_through(std::size_t number, const std::string& written);
  void check_write(std::size_t number, const std::string& written,
                   const std::set<std::string>& updated) const;
  bool is_used_after(std::size_t number, const std::string& name) const {
    const auto last = last_uses_.find(name);
    return last != last_uses_.end() && last->second > number;
  }
  bool has_complex(const ProgramNode& node) const;
  void add_outputs();

  const ExportedProgram& program_;
  OnnxGraph& graph_;
  std::map<std::string, std::size_t>
      last_uses_;  // by value: the number of a call; the outputs come after all calls
  OnnxValues values_;
  SharedMemory memory_;
  std::map<std::string, std::size_t> pieces_;      // results of slices and indices: their calls
  std::map<std::string, std::string> size_names_;  // of symbols
};

constexpr std::string_view kAten = "torch.ops.aten.";

void note_uses(const ProgramArgument& argument, std::size_t user,
               std::map<std::string, std::size_t>& last_uses) {
  for (const std::string& name : tensor_names_in(argument)) last_uses[name] = user;
}

std::map<std::string, std::size_t> last_uses_in(const ExportedProgram& program) {
  std::map<std::string, std::size_t> last_uses;
  for (std::size_t i = 0; i < program.nodes.size(); ++i)
    for (const ProgramNode::Input& input : program.nodes[i].inputs) note_uses(input.argument, i, last_uses);
  for (const ProgramOutput& output : program.outputs)
    note_uses(output.argument, program.nodes.size(), last_uses);
  return last_uses;
}

// "conv2d" of "torch.ops.aten.conv2d.default", "add.Tensor" of another overload.
std::string name_of_operator(const std::string& target) {
  std::string name = target.substr(kAten.size());
  if (name.ends_with(".default")) name.resize(name.size() - std::string_view(".default").size());
  return name;
}

// "add.Tensor" of "add_.Tensor".
std::string without_underscore(std::string name) {
  const std::size_t end = std::min(name.find('.'), name.size());
  if (end > 0 && name[end - 1] == '_') name.erase(end - 1, 1);
  return name;
}

const c10::FunctionSchema& schema_of(const ProgramNode& node) {
  const std::string name = name_of_operator(node.target);
  const std::size_t dot = name.find('.');
  return c10::Dispatcher::singleton()
      .findSchema({"aten::" + name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)})
      ->schema();
}

[[noreturn]] void refuse_operator_in_onnx(const ProgramNode& node, const std::string& name, bool is_complex) {
  if (is_complex && onnx_mappings().contains(name))
    throw CheckpointError({.place = place_of(node),
                           .found = "the ONNX export does not support this operator for complex numbers",
                           .remedy = "write it with torch.real and torch.imag, or export the model as .pt2"});
  std::vector<std::string> known, close;
  for (const std::string& each : operators_in_onnx()) known.push_back(each);
  throw CheckpointError(
      {.place = place_of(node),
       .found = "the ONNX export does not support this operator",
       .wanted = "a supported operator, such as " + list_names(nearest_names(name, known, 10)),
       .remedy = "write the layer with supported operators, or export the model as .pt2"});
}

[[noreturn]] void refuse_custom_operator(const ProgramNode& node) {
  if (is_grouped_product(node))
    throw CheckpointError(
        {.place = place_of(node),
         .found = "the ONNX export does not support the grouped product of a mixture of experts",
         .remedy = "export the model with config.experts_implementation = \"batched_mm\""});
  throw CheckpointError({.place = place_of(node),
                         .found = "it is a custom operator, which ONNX does not have",
                         .wanted = "operators of torch.ops.aten",
                         .remedy = "write the layer with those"});
}

// A buffer that a program changes. Batch norm does so in training mode; other buffers change in any mode.
[[noreturn]] void refuse_changed_buffer(const std::string& place, const std::string& name) {
  const auto is_named = [&](std::string_view end) { return name.ends_with(end); };
  constexpr std::array kStatistics{"running_mean", "running_var", "num_batches_tracked"};
  const bool is_statistics = std::ranges::any_of(kStatistics, is_named);
  throw CheckpointError(
      {.place = place,
       .found = "it changes " + json_string(name) + ", and models of ONNX keep nothing between calls",
       .wanted = is_statistics ? "a program in evaluation mode" : "a forward that changes no buffer",
       .remedy = is_statistics ? "export the model in evaluation mode: model.eval() in Python"
                               : "take the buffer's value as an input and return the new one as an output"});
}

[[noreturn]] void refuse_complex(const std::string& place) {
  throw CheckpointError(
      {.place = place,
       .found = "it is complex, and onnxruntime computes with real numbers only",
       .wanted = "a real tensor",
       .remedy = "pass pairs of real numbers: torch.view_as_real and torch.view_as_complex"});
}

bool has_computed_numbers(const ProgramArgument& argument) {
  if (std::holds_alternative<NumberName>(argument.value)) return true;
  const auto* list = std::get_if<ProgramList>(&argument.value);
  return list != nullptr && std::ranges::any_of(list->items, has_computed_numbers);
}

// "s0" of "Symbol('s0', positive=True, integer=True)"; empty for more than a symbol.
std::string symbol_in(const ProgramSize& size) {
  constexpr std::string_view kBegin = "Symbol('";
  if (!size.expression.starts_with(kBegin)) return "";
  return size.expression.substr(kBegin.size(), size.expression.find('\'', kBegin.size()) - kBegin.size());
}

std::vector<OnnxSize> sizes_of_value(const ProgramTensor& tensor,
                                     const std::map<std::string, std::string>& names) {
  std::vector<OnnxSize> sizes;
  for (const ProgramSize& size : tensor.sizes) {
    if (size.expression.empty()) {
      sizes.push_back({.number = size.number});
      continue;
    }
    const auto name = names.find(symbol_in(size));
    sizes.push_back({.name = name == names.end() ? "" : name->second});
  }
  return sizes;
}

// Returns the paths of the leaves of a program's results: "hidden", "0.1".
void name_leaves(const ProgramTree& tree, const std::string& name, std::vector<std::string>& names) {
  if (tree.kind == ProgramTree::Kind::leaf) return names.push_back(name);
  for (std::size_t i = 0; i < tree.parts.size(); ++i) {
    const bool has_name = tree.kind == ProgramTree::Kind::dict && i < tree.names.size();
    const std::string part = has_name ? tree.names[i] : std::to_string(i);
    name_leaves(tree.parts[i], name.empty() ? part : name + "." + part, names);
  }
}

// Returns "output" or "output.0" for results without names.
std::vector<std::string> output_names(const ExportedProgram& program) {
  const bool has_names = program.results.kind == ProgramTree::Kind::dict;
  const bool is_one = program.outputs.size() == 1 && program.results.parts.size() == 1 && !has_names;
  std::vector<std::string> names;
  name_leaves(is_one ? program.results.parts[0] : program.results, has_names ? "" : "output", names);
  return names;
}

OnnxProgram::OnnxProgram(const ExportedProgram& program, const ProgramWeights& weights,
                         const std::map<std::string, std::string>& size_names, OnnxGraph& graph)
    : program_(program),
      graph_(graph),
      last_uses_(last_uses_in(program)),
      values_(program, last_uses_, graph),
      size_names_(size_names) {
  add_inputs(weights);
  for (std::size_t i = 0; i < program.nodes.size(); ++i) add_call(i);
  add_outputs();
}

void OnnxProgram::add_inputs(const ProgramWeights& weights) {
  std::map<const void*, std::string> memories;  // tied weights share one
  for (const ProgramInput& input : program_.inputs) {
    const auto* name = std::get_if<TensorName>(&input.argument.value);
    if (name == nullptr) continue;  // a number that the program was exported for
    const ProgramTensor& meta = values_.meta(name->name);
    if (input.kind == ProgramInput::Kind::user) {
      if (values_.is_complex(name->name)) refuse_complex("the input " + json_string(name->name));
      for (std::size_t i = 0; i < meta.sizes.size(); ++i)
        if (const std::string symbol = symbol_in(meta.sizes[i]); !symbol.empty())
          size_names_.emplace(symbol, i == 0 && size_names_.empty() ? "batch" : symbol);
      values_.set(name->name,
                  graph_.add_input(name->name, scalar_type_of(meta.type), sizes_of_value(meta, size_names_)));
      memory_.note_input(name->name, name->name);
      continue;
    }
    const auto weight = weights.find(input.target);
    if (weight == weights.end())
      throw CheckpointError(
          {.place = "the program's inputs", .found = "no values for " + json_string(input.target)});
    values_.set_constant(name->name, weight->second, input.target);
    memory_.note_input(name->name,
                       memories.emplace(weight->second.storage().data(), name->name).first->second);
  }
}

void OnnxProgram::add_call(std::size_t number) {
  const ProgramNode& node = program_.nodes[number];
  try {
    if (const auto function = onnx_mappings().find(node.target); function != onnx_mappings().end()) {
      OnnxCall call(node, nullptr, values_, graph_);
      return function->second(call);
    }
    if (!node.target.starts_with(kAten) || is_grouped_product(node)) refuse_custom_operator(node);
    const std::string name = name_of_operator(node.target);
    const std::size_t dot = name.find('.');
    const auto handle = c10::Dispatcher::singleton().findSchema(
        {"aten::" + name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
    if (!handle) refuse_operator_in_onnx(node, name, false);
    const bool draws = handle->hasTag(at::Tag::nondeterministic_seeded);
    if (draws || !fold_constants(number, handle->schema())) add_operator(number, name, handle->schema());
    memory_.note(node, handle->schema());
    memory_.note_repeated(node, program_.tensors);
    if (name == "slice.Tensor" || name == "select.int")
      for (const ProgramArgument& output : node.outputs)
        for (const std::string& piece : tensor_names_in(output)) pieces_[piece] = number;
  } catch (const CheckpointError& error) {
    ErrorParts parts = error.parts();
    if (parts.place.find(node.target) == std::string::npos) parts.place = place_of(node) + ", " + parts.place;
    throw CheckpointError(parts);
  }
}

void OnnxProgram::add_operator(std::size_t number, const std::string& name,
                               const c10::FunctionSchema& schema) {
  const ProgramNode& node = program_.nodes[number];
  const bool is_complex = has_complex(node);
  const auto& mappings = is_complex ? onnx_complex_mappings() : onnx_mappings();
  auto mapping = mappings.find(name);
  if (mapping == mappings.end()) mapping = mappings.find(without_underscore(name));
  if (mapping == mappings.end() && name.starts_with("fft_")) {  // of real numbers, with real results
    mapping = onnx_complex_mappings().find(name);
    if (mapping == onnx_complex_mappings().end()) refuse_operator_in_onnx(node, name, is_complex);
  } else if (mapping == mappings.end()) {
    refuse_operator_in_onnx(node, name, is_complex);
  }
  OnnxCall call(node, &schema, values_, graph_);
  mapping->second(call);
  const std::string* const written = written_tensor(node, schema);
  if (written == nullptr || call.first_result().empty()) return;  // such as dropout in evaluation mode
  for (const std::string& same : memory_.same_as(*written))
    for (const OnnxPart part : {OnnxPart::real, OnnxPart::imaginary})
      if (part == OnnxPart::real || values_.is_complex(same))
        values_.set(same, call.first_result(part), part);
  check_write(number, *written, write_through(number, *written));
}

bool OnnxProgram::has_complex(const ProgramNode& node) const {
  const auto is_complex = [&](const ProgramArgument& argument) {
    return std::ranges::any_of(tensor_names_in(argument), [&](const std::string& name) {
      return program_.tensors.contains(name) && values_.is_complex(name);
    });
  };
  return std::ranges::any_of(node.inputs, is_complex, &ProgramNode::Input::argument) ||
         std::ranges::any_of(node.outputs, is_complex);
}

// After a write to a piece (x[:, 1:3] += y): the tensors that it is a piece of get new values, which have the
// piece in its place. Returns their names.
std::set<std::string> OnnxProgram::write_through(std::size_t number, const std::string& written) {
  std::set<std::string> updated;
  std::string piece = written;
  for (;;) {
    const std::vector<std::string> same = memory_.same_as(piece);
    const auto made =
        std::ranges::find_if(same, [&](const std::string& name) { return pieces_.contains(name); });
    if (made == same.end()) return updated;
    const ProgramNode& node = program_.nodes[pieces_.at(*made)];
    const std::string& whole = std::get<TensorName>(node.inputs.at(0).argument.value).name;
    // A piece of such a tensor is also in its other parts.
    if (memory_.is_repeated(whole)) return updated;
    const std::vector<std::string> wholes = memory_.same_as(whole);
    const std::vector<std::string> views = memory_.other_views_of(piece);
    if (std::ranges::none_of(views, [&](const std::string& view) { return is_used_after(number, view); }))
      return updated;
    OnnxCall call(node, &schema_of(node), values_, graph_);
    std::vector<std::string> values;
    for (const OnnxPart part : {OnnxPart::real, OnnxPart::imaginary}) {
      if (part == OnnxPart::imaginary && !values_.is_complex(whole)) continue;
      call.set_part(part);
      values.push_back(with_piece(call, values_.tensor(piece, part)));
      if (values.back().empty()) return updated;
    }
    for (const std::string& name : wholes)
      for (std::size_t i = 0; i < values.size(); ++i) values_.set(name, values[i], static_cast<OnnxPart>(i));
    updated.insert(wholes.begin(), wholes.end());
    piece = whole;
  }
}

// Evaluates a call at export time if all operands are constants, unless its result is large and larger than
// the operands.
bool OnnxProgram::fold_constants(std::size_t number, const c10::FunctionSchema& schema) {
  constexpr std::int64_t kAlwaysSmall = 1 << 16;
  const ProgramNode& node = program_.nodes[number];
  const std::string* const written = written_tensor(node, schema);
  if (written != nullptr && !can_change(number, *written)) return false;
  if (!listed_operators().contains(schema.name().substr(std::string_view("aten::").size()))) return false;
  std::int64_t given = kAlwaysSmall, made = 0;
  ProgramNames names{ProgramDevice{}};
  std::vector<at::Tensor> operands;
  for (const ProgramNode::Input& input : node.inputs) {
    if (has_computed_numbers(input.argument)) return false;
    for (const std::string& name : tensor_names_in(input.argument)) {
      const at::Tensor* const constant = values_.constant(name);
      if (constant == nullptr) return false;
      given += constant->numel();
      if (names.find(name)) continue;
      names.add(name, ProgramNames::Kind::tensor);
      operands.push_back(*constant);
    }
  }
  std::vector<std::string> results;
  for (const ProgramArgument& output : node.outputs)
    for (const std::string& name : tensor_names_in(output)) {
      made += num_elements_of(values_.meta(name));
      results.push_back(name);
    }
  if (made > given) return false;
  const ProgramCall call(node, names);
  if (call.has_mode()) return false;
  ProgramState state;
  state.values.assign(operands.begin(), operands.end());
  state.values.resize(names.size());
  torch::jit::Stack stack;
  call.run(state, /*in_evaluation=*/false, stack);
  for (const std::string& name : results)
    values_.set_constant(name, state.values[names.find(name)->number].toTensor());
  return true;
}

// True if a call may write to a constant at export time, such as a mask that the forward pass fills part by
// part: its memory is not that of a weight, no part of it is in the graph yet, and later calls use constants
// only.
bool OnnxProgram::can_change(std::size_t number, const std::string& written) const {
  std::vector<std::string> all = memory_.same_as(written);
  const std::vector<std::string> views = memory_.other_views_of(written);
  all.insert(all.end(), views.begin(), views.end());
  for (const ProgramInput& input : program_.inputs)
    if (const auto* name = std::get_if<TensorName>(&input.argument.value);
        name != nullptr && std::ranges::find(all, name->name) != all.end())
      return false;
  return std::ranges::all_of(all, [&](const std::string& name) {
    const auto last = last_uses_.find(name);
    const bool is_used = last != last_uses_.end() && last->second >= number;
    return !values_.is_in_graph(name) && (!is_used || values_.constant(name) != nullptr);
  });
}

// A write through one view of a memory is visible in the others, which a graph of values cannot express.
void OnnxProgram::check_write(std::size_t number, const std::string& written,
                              const std::set<std::string>& updated) const {
  const ProgramNode& node = program_.nodes[number];
  std::vector<std::string> all = memory_.same_as(written);
  const std::vector<std::string> views = memory_.other_views_of(written);
  for (const std::string& view : views)
    if (is_used_after(number, view) && !updated.contains(view))
      throw CheckpointError(
          {.place = place_of(node),
           .found = "it writes to " + json_string(written) + ", a view of the memory of " +
                    json_string(view) + ", which is used afterwards",
           .wanted = "in-place operations on whole tensors, or on slices of them",
           .remedy = "create a new tensor: use torch.cat or torch.where instead of x[…] = y"});
  all.insert(all.end(), views.begin(), views.end());
  for (const ProgramInput& input : program_.inputs)
    if (const auto* name = std::get_if<TensorName>(&input.argument.value);
        name != nullptr && input.kind != ProgramInput::Kind::user &&
        std::ranges::find(all, name->name) != all.end())
      refuse_changed_buffer(place_of(node), input.target);
}

void OnnxProgram::add_outputs() {
  using Kind = ProgramOutput::Kind;
  const std::vector<std::string> names = output_names(program_);
  std::size_t given = 0;
  for (const ProgramOutput& output : program_.outputs) {
    if (output.kind == Kind::user_input_mutation) continue;  // inputs belong to the caller
    if (output.kind == Kind::buffer_mutation || output.kind == Kind::parameter_mutation)
      refuse_changed_buffer("the program", output.target);
    const std::string wanted = given < names.size() ? names[given] : "output";
    ++given;
    if (const auto* name = std::get_if<TensorName>(&output.argument.value)) {
      const ProgramTensor& meta = values_.meta(name->name);
      if (values_.is_complex(name->name)) refuse_complex("the output " + json_string(wanted));
      graph_.add_output(wanted, values_.tensor(name->name), scalar_type_of(meta.type),
                        sizes_of_value(meta, size_names_));
    } else if (const auto* number = std::get_if<NumberName>(&output.argument.value)) {
      using NumberKind = NumberName::Kind;
      const at::ScalarType type = number->kind == NumberKind::integer    ? at::kLong
                                  : number->kind == NumberKind::floating ? at::kDouble
                                                                         : at::kBool;
      graph_.add_output(wanted, graph_.add("Squeeze", {values_.number(number->name)}), type, {});
    }
  }
}

}  // namespace

void write_onnx(const ExportedProgram& program, const ProgramWeights& weights,
                const std::filesystem::path& path, const std::map<std::string, std::string>& size_names,
                const std::map<std::string, std::string>& metadata) {
  const at::NoGradGuard no_grad;
  OnnxGraph graph;
  const OnnxProgram in_graph(program, weights, size_names, graph);
  graph.write(path, metadata);
}

void write_onnx(const Pt2File& file, const std::filesystem::path& path,
                const std::map<std::string, std::string>& size_names) {
  const LoadedWeights loaded = load_weights_of(file);
  ProgramWeights weights;
  auto tensor = loaded.tensors.begin();
  for (const ProgramInput& input : file.program().inputs)
    if (input.kind != ProgramInput::Kind::user) weights[input.target] = *tensor++;
  std::map<std::string, std::string> metadata = file.extra_files();
  std::erase_if(metadata, [](const auto& each) { return !is_utf8(each.first) || !is_utf8(each.second); });
  write_onnx(file.program(), weights, path, size_names, metadata);
}

void convert_to_onnx(const std::filesystem::path& pt2, const std::filesystem::path& onnx) {
  const bool has_both = Pt2File(pt2).has_program(Pt2File::kEvaluation);
  write_onnx(Pt2File(pt2, has_both ? Pt2File::kEvaluation : "model"), onnx);
}

std::vector<std::string> operators_in_onnx() {
  std::vector<std::string> names;
  for (const auto& [name, mapping] : onnx_mappings()) names.push_back(name);
  for (const auto& [name, mapping] : onnx_complex_mappings())
    if (!onnx_mappings().contains(name)) names.push_back(name);
  std::ranges::sort(names);
  return names;
}

}  // namespace kindling
