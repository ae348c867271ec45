#include "interop/export/recorded_model.h"

#include <c10/util/Exception.h>
#include <torch/version.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "formats/pt2/exported_program.h"
#include "interop/export/dynamic_sizes.h"
#include "interop/export/forward_recorder.h"
#include "interop/export/forward_recording.h"
#include "interop/export/recorded_argument.h"
#include "interop/export/recording_passes.h"
#include "kindling/base/error.h"

namespace kindling {
namespace {

// The inputs and outputs of a program, and the names of its weights.
struct ProgramFrame {
  std::vector<ProgramInput> weights{};     // kinds and names; those of the recording, in its order
  std::vector<std::string> input_names{};  // of the recording's inputs
  std::vector<std::string> arguments{};    // of the forward function's arguments
  ProgramTree in{}, out{};                 // as ExportedProgram has them
};

// Unique names that are valid in Python's graphs.
class PythonNames {
 public:
  // Returns the name of a value of the recording.
  const std::string& name(const std::string& value, std::string wanted) {
    for (char& letter : wanted)
      if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
    if (wanted.empty() || std::isdigit(static_cast<unsigned char>(wanted[0])) != 0) wanted = "_" + wanted;
    std::string unique = wanted;
    for (int i = 1; !taken_.insert(unique).second; ++i) unique = wanted + "_" + std::to_string(i);
    return names_[value] = unique;
  }
  void alias(const std::string& value, const std::string& name) { names_[value] = name; }
  const std::string& of(const std::string& value) const { return names_.at(value); }
  ProgramArgument of(ProgramArgument argument) const {
    for_each_value(argument, [this](std::string& value) { value = of(value); });
    return argument;
  }

 private:
  std::map<std::string, std::string> names_;
  std::set<std::string> taken_;
};

// True if an argument equals the default of its schema.
struct IsDefault {
  const c10::IValue& value;
  bool operator()(std::monostate) const { return value.isNone(); }
  bool operator()(bool given) const { return value.isBool() && value.toBool() == given; }
  bool operator()(std::int64_t given) const { return value.isInt() && value.toInt() == given; }
  bool operator()(double given) const { return value.isDouble() && value.toDouble() == given; }
  bool operator()(const std::string& given) const { return value.isString() && value.toStringRef() == given; }
  bool operator()(const ProgramList& given) const {
    if (given.element != ProgramList::Element::integers || !value.isIntList()) return false;
    return std::ranges::equal(given.items, value.toIntVector(), [](const auto& item, std::int64_t number) {
      return std::get<std::int64_t>(item.value) == number;
    });
  }
  bool operator()(const auto&) const { return false; }
};

bool is_default(const c10::Argument& schema, const ProgramArgument& argument) {
  return schema.default_value() && std::visit(IsDefault{*schema.default_value()}, argument.value);
}

// Keeps positional arguments up to the last one that is not a default, and keyword arguments that are not.
std::vector<ProgramNode::Input> without_defaults(const RecordedCall& call) {
  const auto& schema = call.op.schema().arguments();
  std::size_t positional = 0;
  for (std::size_t i = 0; i < schema.size(); ++i)
    if (!schema[i].kwarg_only() && !is_default(schema[i], call.node.inputs[i].argument)) positional = i + 1;
  std::vector<ProgramNode::Input> inputs;
  for (std::size_t i = 0; i < schema.size(); ++i)
    if (schema[i].kwarg_only() ? !is_default(schema[i], call.node.inputs[i].argument) : i < positional)
      inputs.push_back(call.node.inputs[i]);
  return inputs;
}

class PythonProgram {
 public:
  PythonProgram(const ForwardRecording& recording, const ProgramFrame& frame, const DynamicSizes& sizes)
      : recording_(recording), frame_(frame), sizes_(sizes) {}

  ExportedProgram make() {
    for (std::size_t i = 0; i < frame_.weights.size(); ++i) {
      const bool is_parameter = frame_.weights[i].kind == ProgramInput::Kind::parameter;
      add_input(frame_.weights[i], recording_.weights[i], is_parameter ? "p_" : "b_");
    }
    for (std::size_t i = 0; i < recording_.constants.size(); ++i)
      add_input({.kind = ProgramInput::Kind::constant,
                 .argument = {},
                 .target = "_tensor_constant" + std::to_string(i)},
                recording_.constants[i].first, "c_");
    for (std::size_t i = 0; i < recording_.inputs.size(); ++i)
      add_input({.kind = ProgramInput::Kind::user, .argument = {}}, recording_.inputs[i],
                frame_.input_names[i]);
    add_numbers();
    for (const RecordedCall& call : recording_.calls) add_call(call);
    for (const std::string& output : recording_.outputs)
      program_.outputs.push_back(
          {.kind = ProgramOutput::Kind::user, .argument = {TensorName{names_.of(output)}}});
    program_.arguments = frame_.in;
    program_.results = frame_.out;
    program_.input_names = frame_.arguments;
    program_.torch_version = TORCH_VERSION;
    return std::move(program_);
  }

 private:
  void add_input(ProgramInput input, const std::string& value, const std::string& name) {
    const std::string& unique = names_.name(value, name + input.target);
    input.argument = {TensorName{unique}};
    program_.tensors[unique] = recording_.tensors.at(value);
    program_.inputs.push_back(std::move(input));
  }

  // Adds a node that computes a number.
  ProgramArgument add_number(const std::string& function, const SizePolynomial& polynomial,
                             ProgramArgument of, ProgramArgument and_of) {
    if (const auto known = computed_.find(polynomial); known != computed_.end()) return known->second;
    const std::string& name =
        names_.name("number " + std::to_string(computed_.size()), function.substr(function.rfind('.') + 1));
    program_.numbers[name] = {.number = polynomial.at(sizes_.recorded().all()[0]),
                              .expression = expression_of(polynomial)};
    ProgramNode node{.target = function, .inputs = {}, .outputs = {}};
    const bool is_size = function.starts_with("torch.");
    node.inputs = {{.name = is_size ? "self" : "a", .argument = std::move(of)},
                   {.name = is_size ? "dim" : "b", .argument = std::move(and_of)}};
    node.outputs.push_back({NumberName{NumberName::Kind::integer, name}});
    program_.nodes.push_back(std::move(node));
    return computed_[polynomial] = {NumberName{NumberName::Kind::integer, name}};
  }

  SizePolynomial multiple_of(std::size_t size, std::int64_t factor) const {
    SizePolynomial::Exponents exponents(sizes_.count());
    exponents[size] = 1;
    return {{{exponents, factor}}};
  }

  // If an input has the size, adds nodes that query it.
  bool add_size(std::size_t size) {
    const SizePolynomial term_value = multiple_of(size, sizes_.multiple(size));
    for (const std::string& input : recording_.inputs) {
      const std::vector<ProgramSize>& sizes = recording_.tensors.at(input).sizes;
      const auto at = std::ranges::find(sizes, expression_of(term_value), &ProgramSize::expression);
      if (at == sizes.end()) continue;
      program_.ranges[size_symbol(size)] = sizes_.range(size);
      if (!is_needed(size)) return true;
      const ProgramArgument size_value =
          add_number("torch.ops.aten.sym_size.int", term_value, {TensorName{names_.of(input)}},
                     {std::int64_t{at - sizes.begin()}});
      if (sizes_.multiple(size) > 1)
        add_number("_operator.floordiv", multiple_of(size, 1), size_value, {sizes_.multiple(size)});
      return true;
    }
    return false;
  }

  bool is_needed(std::size_t size) const {
    return std::ranges::any_of(recording_.numbers, [&](const auto& number) {
      return std::ranges::any_of(number.second.terms, [&](const auto& term) { return term.first[size] > 0; });
    });
  }

  // Adds a product of sizes, such as batch * sequence.
  ProgramArgument add_product(const SizePolynomial::Exponents& exponents) {
    SizePolynomial::Exponents rest = exponents;
    const std::size_t size = static_cast<std::size_t>(
        std::ranges::find_if(exponents, [](int exponent) { return exponent > 0; }) - exponents.begin());
    --rest[size];
    const ProgramArgument one = computed_.at(multiple_of(size, 1));
    if (SizePolynomial{{{rest, 1}}}.constant()) return one;
    return add_number("_operator.mul", {{{exponents, 1}}}, one, add_product(rest));
  }

  ProgramArgument add_polynomial(const SizePolynomial& polynomial) {
    SizePolynomial sum;
    std::optional<ProgramArgument> sum_value;
    for (auto term = polynomial.terms.rbegin(); term != polynomial.terms.rend(); ++term) {
      const auto& [exponents, factor] = *term;
      const SizePolynomial alone{{*term}};
      sum.terms.insert(*term);
      ProgramArgument term_value{factor};
      if (!alone.constant()) term_value = add_product(exponents);
      if (!alone.constant() && factor != 1)
        term_value = add_number("_operator.mul", alone, term_value, {factor});
      sum_value = sum_value ? add_number("_operator.add", sum, *sum_value, term_value) : term_value;
    }
    return *sum_value;
  }

  // Adds the dynamic sizes and the numbers computed from them.
  void add_numbers() {
    for (std::size_t size = 0; size < sizes_.count(); ++size)
      if (!add_size(size) && is_needed(size))
        throw Error({.place = "export of a model",
                     .found = "the forward pass computes with the size " +
                              sizes_.names().at(size_symbol(size)) + ", which is not the size of any input",
                     .wanted = "an input with this size, such as one with the samples along dimension 0"});
    for (const auto& [value, polynomial] : recording_.numbers)
      names_.alias(value, std::get<NumberName>(add_polynomial(polynomial).value).name);
  }

  void add_call(const RecordedCall& call) {
    std::string name = call.op.schema().name().substr(std::string_view("aten::").size());
    const std::string& overload = call.op.schema().overload_name();
    std::vector<ProgramNode::Input> inputs = without_defaults(call);
    for (ProgramNode::Input& input : inputs) input.argument = names_.of(std::move(input.argument));
    // In C++, contiguous() of a contiguous tensor is not recorded, and Python may then need reshape() for
    // view().
    if (name == "view" && overload.empty()) {
      name = "reshape";
      inputs[1].name = "shape";
    }
    ProgramNode node{.target = "torch.ops.aten." + name + "." + (overload.empty() ? "default" : overload),
                     .inputs = std::move(inputs),
                     .outputs = {},
                     .layer = call.node.layer};
    const bool is_alone =
        call.node.outputs.size() == 1 && std::holds_alternative<TensorName>(call.node.outputs[0].value);
    for (const ProgramArgument& output : call.node.outputs) {
      for_each_value(output, [&](const std::string& value) {
        program_.tensors[names_.name(value, is_alone ? name : "getitem")] = recording_.tensors.at(value);
      });
      node.outputs.push_back(names_.of(output));
    }
    program_.nodes.push_back(std::move(node));
  }

  const ForwardRecording& recording_;
  const ProgramFrame& frame_;
  const DynamicSizes& sizes_;
  PythonNames names_;
  std::map<SizePolynomial, ProgramArgument> computed_;  // by nodes of the program
  ExportedProgram program_;
};

// Converts a recording to the form of torch.export: without default arguments, starting with the numbers
// computed from dynamic sizes, and with Python's names ("linear_1", "p_net_0_weight").
ExportedProgram python_program(const ForwardRecording& recording, const ProgramFrame& frame,
                               const DynamicSizes& sizes) {
  return PythonProgram(recording, frame, sizes).make();
}

struct NamedWeight {
  std::string name;
  at::Tensor tensor;
  bool is_parameter;
};

std::vector<NamedWeight> weights_of_model(const torch::nn::Module& model) {
  std::vector<NamedWeight> weights;
  for (const auto& item : model.named_parameters()) weights.push_back({item.key(), item.value(), true});
  for (const auto& item : model.named_buffers()) weights.push_back({item.key(), item.value(), false});
  return weights;
}

NamedTensors named_tensors(const std::vector<NamedWeight>& weights) {
  NamedTensors named;
  for (const NamedWeight& weight : weights) named.emplace_back(weight.name, weight.tensor);
  return named;
}

struct RecordedRun {
  ForwardRecording recording;
  Batch inputs, outputs;
};

RecordedRun recorded_run(const BatchFunction& forward, const NamedTensors& weights, const Batch& inputs,
                         const DynamicSizes& dynamic, const DynamicSizes::Sizes& sizes) {
  RecordedRun run{.recording = {}, .inputs = inputs, .outputs = {}};
  try {
    ForwardRecorder recorder(run.recording, weights, inputs);
    try {
      run.outputs = forward(inputs);
    } catch (const c10::Error& error) {
      recorder.require_program();
      dynamic.refuse_forward(sizes, error.what_without_backtrace());
    }
    recorder.finish(run.outputs);
  } catch (const ExportError& reason) {
    throw Error({.place = "export of a model", .found = reason.found, .remedy = reason.remedy});
  }
  restore_linear(run.recording);
  remove_dead_calls(run.recording);
  return run;
}

// Returns the inputs that a call or an output depends on.
std::vector<std::size_t> used_inputs(const ForwardRecording& recording) {
  std::set<std::string> used(recording.outputs.begin(), recording.outputs.end());
  for (const RecordedCall& call : recording.calls)
    for (const ProgramNode::Input& input : call.node.inputs)
      for_each_value(input.argument, [&](const std::string& value) { used.insert(value); });
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < recording.inputs.size(); ++i)
    if (used.contains(recording.inputs[i])) places.push_back(i);
  return places;
}

// The nesting of a batch and the names of its tensors; parts without any of `used` are omitted.
class NestedBatch {
 public:
  NestedBatch(const BatchStructure& structure, std::vector<std::size_t> used) : used_(std::move(used)) {
    tree_ = tree_of(structure, "").value_or(ProgramTree{.kind = ProgramTree::Kind::list});
  }

  // The arguments of a function: the parts of a list, or a single value.
  ProgramTree arguments() {
    using Kind = ProgramTree::Kind;
    if (tree_.kind == Kind::list) return {.kind = Kind::tuple, .parts = tree_.parts};
    return {.kind = Kind::tuple, .parts = {tree_}};
  }
  const ProgramTree& tree() const { return tree_; }
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::optional<ProgramTree> tree_of(const BatchStructure& structure, const std::string& name) {
    using Kind = BatchStructure::Kind;
    if (structure.kind == Kind::leaf) {
      if (std::ranges::find(used_, leaf_++) == used_.end()) return std::nullopt;
      names_.push_back("input" + name);
      return ProgramTree{};
    }
    const bool is_map = structure.kind == Kind::map;
    ProgramTree tree{.kind = is_map ? ProgramTree::Kind::dict : ProgramTree::Kind::list};
    for (std::size_t i = 0; i < structure.parts.size(); ++i) {
      const std::string part = is_map ? structure.names[i] : std::to_string(i);
      std::optional<ProgramTree> found = tree_of(*structure.parts[i], name + "_" + part);
      if (!found) continue;
      tree.parts.push_back(std::move(*found));
      if (is_map) tree.names.push_back(part);
    }
    if (tree.parts.empty()) return std::nullopt;
    return tree;
  }

  std::vector<std::size_t> used_;
  std::size_t leaf_ = 0;
  std::vector<std::string> names_;
  ProgramTree tree_;
};

std::vector<std::size_t> all_indices(std::size_t count) {
  std::vector<std::size_t> places(count);
  for (std::size_t i = 0; i < count; ++i) places[i] = i;
  return places;
}

void keep_inputs(ForwardRecording& recording, const std::vector<std::size_t>& used) {
  std::vector<std::string> inputs;
  for (const std::size_t place : used) inputs.push_back(recording.inputs[place]);
  recording.inputs = std::move(inputs);
}

ProgramFrame frame_of(const std::vector<NamedWeight>& weights, const RecordedRun& run,
                      const std::vector<std::size_t>& used) {
  ProgramFrame frame;
  for (const NamedWeight& weight : weights)
    frame.weights.push_back(
        {.kind = weight.is_parameter ? ProgramInput::Kind::parameter : ProgramInput::Kind::buffer,
         .argument = {},
         .target = weight.name});
  NestedBatch in(*run.inputs.structure(), used);
  NestedBatch out(*run.outputs.structure(), all_indices(run.outputs.tensors().size()));
  frame.input_names = in.names();
  frame.in = {.kind = ProgramTree::Kind::tuple, .parts = {in.arguments(), {.kind = ProgramTree::Kind::dict}}};
  const std::size_t count = frame.in.parts[0].parts.size();
  for (std::size_t i = 0; i < count; ++i)
    frame.arguments.push_back(count == 1 ? "input" : "input_" + std::to_string(i));
  frame.out = out.tree();
  if (frame.out.kind == ProgramTree::Kind::list) frame.out.kind = ProgramTree::Kind::tuple;
  return frame;
}

void add_weight(RecordedModel& model, const std::string& name, const at::Tensor& tensor, bool is_parameter) {
  const at::Tensor values = tensor.resolve_conj().resolve_neg();  // its storage is written as it is
  const void* storage = values.storage().unsafeGetStorageImpl();
  ProgramWeight weight{.name = name,
                       .tensor = recorded_tensor(values),
                       .is_parameter = is_parameter,
                       .storage = model.tensors.size()};
  for (std::size_t i = 0; i < model.tensors.size(); ++i)
    if (model.tensors[i].storage().unsafeGetStorageImpl() == storage) {
      weight.storage = model.weights[i].storage;
      break;
    }
  model.weights.push_back(std::move(weight));
  model.tensors.push_back(values.detach());
}

void require_on_host(const std::vector<NamedWeight>& weights, const Batch& example) {
  const auto require = [](const std::string& what, const at::Tensor& tensor) {
    if (!tensor.is_cpu())
      throw Error({.place = "export of a model",
                   .found = what + " is on " + tensor.device().str(),
                   .wanted = "a model and an example in host memory",
                   .remedy = "call model->to(kd::cpu()) before the export, and move it back afterwards"});
  };
  for (const NamedWeight& weight : weights) require(weight.name, weight.tensor);
  for (const at::Tensor& tensor : example.tensors()) require("the example", tensor);
}

}  // namespace

RecordedModel recorded_model(torch::nn::Module& model, const BatchFunction& forward, const Batch& example,
                             const ScopedModelState& state, const DynamicSizes& sizes,
                             bool drops_unused_inputs) {
  const std::vector<NamedWeight> weights = weights_of_model(model);
  require_on_host(weights, example);
  const std::vector<DynamicSizes::Sizes>& all = sizes.recorded().all();
  std::vector<ForwardRecording> recordings;
  RecordedRun first;
  for (std::size_t i = 0; i < all.size(); ++i) {
    // Each starts at another sample, so that numbers that depend on values differ, too.
    RecordedRun run =
        recorded_run(forward, named_tensors(weights),
                     sizes.resized(example, all[i], static_cast<std::int64_t>(i)), sizes, all[i]);
    state.restore_values();
    recordings.push_back(std::move(run.recording));
    if (i == 0) first = {.recording = {}, .inputs = run.inputs, .outputs = run.outputs};
  }
  ForwardRecording merged = merged_recordings(recordings, sizes);
  RecordedModel recorded;
  recorded.used = drops_unused_inputs ? used_inputs(merged) : all_indices(merged.inputs.size());
  keep_inputs(merged, recorded.used);
  recorded.program = python_program(merged, frame_of(weights, first, recorded.used), sizes);
  for (const NamedWeight& weight : weights)
    add_weight(recorded, weight.name, weight.tensor, weight.is_parameter);
  std::size_t constant = weights.size();
  for (const auto& [name, tensor] : merged.constants)
    add_weight(recorded, recorded.program.inputs[constant++].target, tensor, /*is_parameter=*/false);
  recorded.example = sizes.resized(example, all[0], 0);
  return recorded;
}

}  // namespace kindling
