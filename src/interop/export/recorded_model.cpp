#include "programs/python_program.h"

#include <torch/version.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
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

  // A node that computes a number.
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

  // Whether an input has the size, so that the program can ask it; then nodes that do.
  bool add_size(std::size_t size) {
    const SizePolynomial there = multiple_of(size, sizes_.multiple(size));
    for (const std::string& input : recording_.inputs) {
      const std::vector<ProgramSize>& sizes = recording_.tensors.at(input).sizes;
      const auto at = std::ranges::find(sizes, expression_of(there), &ProgramSize::expression);
      if (at == sizes.end()) continue;
      program_.ranges[size_symbol(size)] = sizes_.range(size);
      if (!is_needed(size)) return true;
      const ProgramArgument asked =
          add_number("torch.ops.aten.sym_size.int", there, {TensorName{names_.of(input)}},
                     {std::int64_t{at - sizes.begin()}});
      if (sizes_.multiple(size) > 1)
        add_number("_operator.floordiv", multiple_of(size, 1), asked, {sizes_.multiple(size)});
      return true;
    }
    return false;
  }

  bool is_needed(std::size_t size) const {
    return std::ranges::any_of(recording_.numbers, [&](const auto& number) {
      return std::ranges::any_of(number.second.terms, [&](const auto& term) { return term.first[size] > 0; });
    });
  }

  // Of the sizes alone, such as batch * sequence.
  ProgramArgument add_product(const SizePolynomial::Exponents& exponents) {
    SizePolynomial::Exponents others = exponents;
    const std::size_t size = static_cast<std::size_t>(
        std::ranges::find_if(exponents, [](int exponent) { return exponent > 0; }) - exponents.begin());
    --others[size];
    const ProgramArgument one = computed_.at(multiple_of(size, 1));
    if (SizePolynomial{{{others, 1}}}.constant()) return one;
    return add_number("_operator.mul", {{{exponents, 1}}}, one, add_product(others));
  }

  ProgramArgument add_polynomial(const SizePolynomial& polynomial) {
    SizePolynomial sum;
    std::optional<ProgramArgument> sum_there;
    for (auto term = polynomial.terms.rbegin(); term != polynomial.terms.rend(); ++term) {
      const auto& [exponents, factor] = *term;
      const SizePolynomial alone{{*term}};
      sum.terms.insert(*term);
      ProgramArgument there{factor};
      if (!alone.constant()) there = add_product(exponents);
      if (!alone.constant() && factor != 1) there = add_number("_operator.mul", alone, there, {factor});
      sum_there = sum_there ? add_number("_operator.add", sum, *sum_there, there) : there;
    }
    return *sum_there;
  }

  // The dynamic sizes, and what is computed of them.
  void add_numbers() {
    for (std::size_t size = 0; size < sizes_.count(); ++size)
      if (!add_size(size) && is_needed(size))
        throw Error({.place = "export of a model",
                     .found = "its forward computes with the size " + sizes_.names().at(size_symbol(size)) +
                              ", which is no size of an input",
                     .wanted = "an input that has it, such as one with the samples along dimension 0"});
    for (const auto& [value, polynomial] : recording_.numbers)
      names_.alias(value, std::get<NumberName>(add_polynomial(polynomial).value).name);
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
  const DynamicSizes& sizes_;
  PythonNames names_;
  std::map<SizePolynomial, ProgramArgument> computed_;  // by nodes of the program
  ExportedProgram program_;
};

}  // namespace

ExportedProgram python_program(const ForwardRecording& recording, const ProgramFrame& frame,
                               const DynamicSizes& sizes) {
  return PythonProgram(recording, frame, sizes).make();
}

}  // namespace kindling
