#include "programs/python_program.h"

#include <torch/version.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "kindling/base/error.h"
#include "programs/recorded_argument.h"

namespace kindling {
namespace {

// Names that Python's graphs can have, each once.
class PythonNames {
 public:
  // The name for a value of the recording.
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

// Whether an argument is what a schema has for it.
struct IsDefault {
  const c10::IValue& value;
  bool operator()(std::monostate) const { return value.isNone(); }
  bool operator()(bool given) const { return value.isBool() && value.toBool() == given; }
  bool operator()(std::int64_t given) const { return value.isInt() && value.toInt() == given; }
  bool operator()(double given) const { return value.isDouble() && value.toDouble() == given; }
  bool operator()(const std::string& given) const { return value.isString() && value.toStringRef() == given; }
  bool operator()(const ProgramList& given) const {
    if (given.of != ProgramList::Of::integers || !value.isIntList()) return false;
    return std::ranges::equal(given.items, value.toIntVector(), [](const auto& item, std::int64_t number) {
      return std::get<std::int64_t>(item.value) == number;
    });
  }
  bool operator()(const auto&) const { return false; }
};

bool is_default(const c10::Argument& schema, const ProgramArgument& argument) {
  return schema.default_value() && std::visit(IsDefault{*schema.default_value()}, argument.value);
}

// Positional arguments stand up to the last one that is no default, keywords only where they are none.
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
  PythonProgram(const ForwardRecording& recording, const ProgramFrame& frame)
      : recording_(recording), frame_(frame) {}

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

  ProgramSize number_at_example(BatchLine line) const {
    return {.number = line.a * batch_ + line.b, .expression = expression_of(line)};
  }

  std::string add_number(const std::string& value, const std::string& function, BatchLine line,
                         std::vector<ProgramArgument> of) {
    const std::string& name = names_.name(value, function.substr(function.rfind('.') + 1));
    program_.numbers[name] = number_at_example(line);
    ProgramNode node{.target = function, .inputs = {}, .outputs = {}};
    const bool is_size = function.starts_with("torch.");
    node.inputs = {{.name = is_size ? "self" : "a", .argument = std::move(of[0])},
                   {.name = is_size ? "dim" : "b", .argument = std::move(of[1])}};
    node.outputs.push_back({NumberName{NumberName::Kind::integer, name}});
    program_.nodes.push_back(std::move(node));
    return name;
  }

  // The batch size, which is a size of an input, and what is computed of it.
  void add_numbers() {
    const auto is_batch = [&](const std::string& input) {
      const auto& sizes = recording_.tensors.at(input).sizes;
      return !sizes.empty() && sizes[0].expression == expression_of({.a = 1, .b = 0});
    };
    const auto source = std::ranges::find_if(recording_.inputs, is_batch);
    if (source == recording_.inputs.end()) {
      if (recording_.numbers.empty()) return;
      throw Error({.place = "export of a model",
                   .found = "its forward computes with the batch size, which is no size of an input",
                   .wanted = "an input with the samples along dimension 0"});
    }
    batch_ = recording_.tensors.at(*source).sizes[0].number;
    program_.ranges[kBatchSymbol] = {1, std::nullopt};
    if (recording_.numbers.empty()) return;
    const auto integer = [](const std::string& name) {
      return ProgramArgument{NumberName{NumberName::Kind::integer, name}};
    };
    const std::string size = add_number("B", "torch.ops.aten.sym_size.int", {.a = 1, .b = 0},
                                        {{TensorName{names_.of(*source)}}, {std::int64_t{0}}});
    for (const auto& [value, line] : recording_.numbers) {
      std::string name = size;
      if (line.a != 1)
        name = add_number(value, "_operator.mul", {.a = line.a, .b = 0}, {integer(size), {line.a}});
      if (line.b != 0) name = add_number(value, "_operator.add", line, {integer(name), {line.b}});
      names_.alias(value, name);
    }
  }

  void add_call(const RecordedCall& call) {
    std::string name = call.op.schema().name().substr(std::string_view("aten::").size());
    const std::string& overload = call.op.schema().overload_name();
    std::vector<ProgramNode::Input> inputs = without_defaults(call);
    for (ProgramNode::Input& input : inputs) input.argument = names_.of(std::move(input.argument));
    // contiguous() is no operator in C++ where a tensor is contiguous already, and view() may then be none in
    // Python.
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
  PythonNames names_;
  ExportedProgram program_;
  std::int64_t batch_ = 0;
};

}  // namespace

ExportedProgram python_program(const ForwardRecording& recording, const ProgramFrame& frame) {
  return PythonProgram(recording, frame).make();
}

}  // namespace kindling
