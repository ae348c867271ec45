#include "programs/package_values.h"

#include <algorithm>
#include <set>
#include <variant>
#include <vector>

#include "kindling/base/error.h"
#include "kindling/base/suggest.h"
#include "tensors/shape_text.h"

namespace kindling {
namespace {

void add_names(const ProgramArgument& argument, std::set<std::string>& names) {
  if (const auto* tensor = std::get_if<TensorName>(&argument.value)) names.insert(tensor->name);
  if (const auto* list = std::get_if<ProgramList>(&argument.value))
    for (const ProgramArgument& item : list->items) add_names(item, names);
}

// The values that some operator takes, or that are outputs.
std::set<std::string> used_names(const ExportedProgram& program) {
  std::set<std::string> names;
  for (const ProgramNode& node : program.nodes)
    for (const ProgramNode::Input& input : node.inputs) add_names(input.argument, names);
  for (const ProgramOutput& output : program.outputs) add_names(output.argument, names);
  return names;
}

// Which outputs in evaluation mode depend on. Batch norms count their batches for training alone.
bool can_matter(const ProgramInput& input, const std::set<std::string>& used) {
  return !input.target.ends_with("num_batches_tracked") &&
         used.contains(std::get<TensorName>(input.argument.value).name);
}

// Constants, and buffers that are part of no state dict, are always those of the file.
bool can_change(const ProgramInput& input) {
  return input.kind == ProgramInput::Kind::parameter ||
         (input.kind == ProgramInput::Kind::buffer && input.is_persistent);
}

// That were not in the program when it was exported: what Python made constants of while it compiled.
bool is_pythons_own(const std::string& name) {
  constexpr std::string_view kBeginnings[] = {"_tensor_constant", "lifted_tensor_", "constant"};
  return std::ranges::any_of(kBeginnings, [&](std::string_view beginning) {
    return name.starts_with(beginning) && name.size() > beginning.size() &&
           name.find_first_not_of("0123456789", beginning.size()) == std::string::npos;
  });
}

using Constants = std::map<std::string, at::Tensor>;

// Of each weight, in their order.
std::vector<const ProgramInput*> inputs_of_weights(const ExportedProgram& program) {
  std::vector<const ProgramInput*> inputs;
  for (const ProgramInput& input : program.inputs)
    if (input.kind != ProgramInput::Kind::user) inputs.push_back(&input);
  return inputs;
}

void require_same_types(const Constants& values, const Constants& constants, const std::string& place) {
  std::vector<std::string> misfits;
  for (const auto& [name, value] : values) {
    const at::Tensor& constant = constants.at(name);
    if (value.sizes() != constant.sizes() || value.scalar_type() != constant.scalar_type())
      misfits.push_back(name + " (" + type_text(value) + ", there " + type_text(constant) + ")");
  }
  if (!misfits.empty())
    throw CheckpointError(
        {.place = place,
         .found = "the model's weights are not those of the package: " + list_names(misfits),
         .wanted = "the same shapes and dtypes",
         .remedy = "compile the program that the model was loaded from"});
}

// Tied weights have one place, under one of their names.
void require_place_for_all(const ExportedProgram& program, std::span<const at::Tensor> weights,
                           const Constants& values, const std::string& place) {
  std::set<const void*> placed;
  for (const auto& [name, value] : values) placed.insert(value.unsafeGetTensorImpl());
  const std::set<std::string> used = used_names(program);
  const std::vector<const ProgramInput*> inputs = inputs_of_weights(program);
  std::vector<std::string> left;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (can_change(*inputs[i]) && can_matter(*inputs[i], used) &&
        !placed.contains(weights[i].unsafeGetTensorImpl()))
      left.push_back(inputs[i]->target);
  if (!left.empty())
    throw CheckpointError(
        {.place = place,
         .found = "its code has values of its own for " + list_names(left),
         .wanted = "a place for every weight of the model",
         .remedy = "compile the model's own program with inductor_configs={\"always_keep_tensor_constants\": "
                   "True}, and without freezing"});
}

}  // namespace

Constants values_for(const CompiledCode& code, const ExportedProgram& program,
                     std::span<const at::Tensor> weights) {
  const Constants constants = code.constants();
  const std::vector<const ProgramInput*> inputs = inputs_of_weights(program);
  Constants values;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (constants.contains(inputs[i]->target)) values[inputs[i]->target] = weights[i];
  std::vector<std::string> unknown;
  for (const auto& [name, constant] : constants)
    if (is_pythons_own(name))
      values.emplace(name, constant);
    else if (!values.contains(name))
      unknown.push_back(name);
  if (!unknown.empty())
    throw CheckpointError(
        {.place = code.place(),
         .found = "its code takes " + list_names(unknown) + ", which the model does not have",
         .wanted = "a package of the model's own program",
         .remedy = "compile the program that the model was loaded from, without freezing"});
  require_same_types(values, constants, code.place());
  require_place_for_all(program, weights, values, code.place());
  return values;
}

}  // namespace kindling
