#include "interop/run/program_runner.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <optional>
#include <set>

#include "kindling/base/error.h"
#include "kindling/base/json.h"

namespace kindling {
namespace {

// Returns the device of the program's tensors, which are assumed to be on one device.
ProgramDevice home_of(const ExportedProgram& program) {
  for (const ProgramInput& input : program.inputs)
    if (const auto* name = std::get_if<TensorName>(&input.argument.value))
      if (const auto tensor = program.tensors.find(name->name); tensor != program.tensors.end())
        return tensor->second.device;
  return {};
}

// Returns "net.1" for "net.1.weight", and "" for a tensor of the model itself.
std::string owner_of(const std::string& target) {
  const std::size_t dot = target.rfind('.');
  return dot == std::string::npos ? "" : target.substr(0, dot);
}

}  // namespace

ProgramRunner::ProgramRunner(const ExportedProgram& program) : inputs_(program) {
  ProgramNames names(home_of(program));
  add_inputs(program, names);
  calls_.reserve(program.nodes.size());
  for (const ProgramNode& node : program.nodes) {
    names.begin_call(calls_.size());
    calls_.emplace_back(node, names);
    if (calls_.back().draws_in_evaluation()) layers_that_draw_.push_back(node.layer);
  }
  names.begin_call(calls_.size());
  add_outputs(program, names);
  num_values_ = names.size();
  skip_counters(program, names);
  find_layers(program, names);
  note_last_uses(names);
}

void ProgramRunner::add_inputs(const ExportedProgram& program, ProgramNames& names) {
  for (const ProgramInput& input : program.inputs) {
    const auto* name = std::get_if<TensorName>(&input.argument.value);
    if (name == nullptr) continue;  // a constant number
    const std::size_t value = names.add(name->name, ProgramNames::Kind::tensor);
    (input.kind == ProgramInput::Kind::user ? input_values_ : weights_).push_back(value);
  }
}

void ProgramRunner::add_outputs(const ExportedProgram& program, ProgramNames& names) {
  using Kind = ProgramOutput::Kind;
  const auto value_of_target = [&](const ProgramOutput& output) -> std::size_t {
    for (const ProgramInput& input : program.inputs)
      if (const auto* name = std::get_if<TensorName>(&input.argument.value))
        if (input.target == output.target ||
            (input.kind == ProgramInput::Kind::user && name->name == output.target))
          return names.use(name->name, ProgramNames::Kind::tensor);
    throw CheckpointError(
        {.place = "the program's outputs",
         .found = "it modifies " + json_string(output.target) + ", which the program does not have"});
  };
  for (const ProgramOutput& output : program.outputs) {
    const auto* tensor = std::get_if<TensorName>(&output.argument.value);
    if (output.kind == Kind::parameter_mutation)
      throw CheckpointError({.place = "the program's outputs",
                             .found = "the program modifies the parameter " + json_string(output.target),
                             .wanted = "parameters that only an optimizer modifies"});
    if (output.kind == Kind::buffer_mutation || output.kind == Kind::user_input_mutation)
      mutations_.push_back({.from = names.use(tensor->name, ProgramNames::Kind::tensor),
                            .to = value_of_target(output),
                            .layer = {}});
    else if (tensor != nullptr)
      outputs_.push_back(ProgramOperand::of_number(output.argument, names));
  }
  if (outputs_.empty())
    throw CheckpointError({.place = "the program's outputs", .found = "none of them is a tensor"});
}

// Batch norms that do not update their running statistics do not count batches either.
void ProgramRunner::skip_counters(const ExportedProgram& program, const ProgramNames& names) {
  constexpr std::string_view kCounter = "num_batches_tracked";
  std::set<std::size_t> counters;
  for (const ProgramInput& input : program.inputs)
    if (input.kind == ProgramInput::Kind::buffer && input.target.ends_with(kCounter))
      counters.insert(names.find(std::get<TensorName>(input.argument.value).name)->number);
  for (ProgramCall& call : calls_)
    if (call.operator_name() == "add_" && call.arguments()[0].value() &&
        counters.contains(*call.arguments()[0].value()))
      call.skip_in_evaluation();
}

// Finds the layers of calls with a training mode and of weights that the program modifies. The layer of a
// call is recorded in the file, or else that of the first weight among its arguments.
void ProgramRunner::find_layers(const ExportedProgram& program, const ProgramNames& names) {
  std::map<std::size_t, std::string> layers_of_weights;
  for (const ProgramInput& input : program.inputs)
    if (const auto* name = std::get_if<TensorName>(&input.argument.value);
        name != nullptr && input.kind != ProgramInput::Kind::user)
      layers_of_weights[names.find(name->name)->number] = owner_of(input.target);
  const auto layer_of = [&](std::size_t call) {
    if (!program.nodes[call].layer.empty()) return program.nodes[call].layer;
    for (const ProgramOperand& argument : calls_[call].arguments())
      if (const auto known = layers_of_weights.find(argument.value().value_or(num_values_));
          known != layers_of_weights.end())
        return known->second;
    return std::string();
  };
  std::map<std::string, std::size_t> numbers;
  const auto number_of = [&](const std::string& layer) {
    const auto [known, is_new] = numbers.emplace(layer, layers_.size());
    if (is_new) layers_.push_back(layer);
    return known->second;
  };
  for (std::size_t i = 0; i < calls_.size(); ++i)
    layer_of_call_.push_back(calls_[i].depends_on_mode() ? number_of(layer_of(i)) : program.nodes.size());
  const std::vector<bool> is_modified = find_modified();
  for (std::size_t i = 0; i < weights_.size(); ++i)
    if (is_modified[i]) modified_.push_back({i, number_of(layers_of_weights.at(weights_[i]))});
  for (Mutation& mutation : mutations_)
    if (const auto weight = layers_of_weights.find(mutation.to); weight != layers_of_weights.end())
      mutation.layer = number_of(weight->second);
}

// Finds the weights that calls modify in place, directly or through views, in evaluation mode.
std::vector<bool> ProgramRunner::find_modified() const {
  std::vector<std::set<std::size_t>> memory(num_values_);  // by value: the weights whose memory it may share
  for (std::size_t i = 0; i < weights_.size(); ++i) memory[weights_[i]].insert(i);
  std::vector<bool> is_modified(weights_.size());
  for (const ProgramCall& call : calls_) {
    std::set<std::size_t> viewed;
    for (const std::size_t value : call.viewed_values())
      viewed.insert(memory[value].begin(), memory[value].end());
    for (const std::size_t result : call.results()) memory[result].insert(viewed.begin(), viewed.end());
    for (const std::size_t value : call.written_values())
      for (const std::size_t weight : memory[value]) is_modified[weight] = true;
  }
  return is_modified;
}

// Weights and inputs are not released, because others hold them anyway.
void ProgramRunner::note_last_uses(const ProgramNames& names) {
  const std::set<std::size_t> weights(weights_.begin(), weights_.end());
  released_.resize(calls_.size() + 1);
  for (std::size_t value = 0; value < num_values_; ++value)
    if (!weights.contains(value)) released_[names.last_users()[value]].push_back(value);
  released_.pop_back();  // the outputs
}

bool ProgramRunner::has_mode() const noexcept { return std::ranges::any_of(calls_, &ProgramCall::has_mode); }

bool ProgramRunner::is_in_training_mode() const noexcept {
  return std::ranges::any_of(calls_, &ProgramCall::is_in_training_mode);
}

// Layers in evaluation mode modify copies of their tensors. Tied tensors have one copy.
void ProgramRunner::protect_weights(ProgramState& state, std::span<const at::Tensor> weights,
                                    std::span<const torch::nn::Module* const> layers) const {
  for (const auto& [modified, layer] : modified_) {
    const at::Tensor& original = weights[modified];
    if (layers[layer]->is_training() || !state.values[weights_[modified]].toTensor().is_same(original))
      continue;
    const at::Tensor copy = original.clone();
    for (std::size_t i = 0; i < weights_.size(); ++i)
      if (weights[i].is_same(original)) state.values[weights_[i]] = copy;
  }
}

std::vector<at::Tensor> ProgramRunner::run(std::span<const at::Tensor> weights,
                                           std::span<const at::Tensor> inputs,
                                           std::span<const torch::nn::Module* const> layers) const {
  inputs_.check(inputs);
  ProgramState state{.values = std::vector<c10::IValue>(num_values_)};
  if (!inputs.empty() || !weights.empty()) state.device = (inputs.empty() ? weights : inputs)[0].device();
  for (std::size_t i = 0; i < weights_.size(); ++i) state.values[weights_[i]] = weights[i];
  protect_weights(state, weights, layers);
  for (std::size_t i = 0; i < input_values_.size(); ++i) state.values[input_values_[i]] = inputs[i];
  torch::jit::Stack stack;
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    try {
      const bool in_evaluation = calls_[i].depends_on_mode() && !layers[layer_of_call_[i]]->is_training();
      calls_[i].run(state, in_evaluation, stack);
    } catch (c10::Error& error) {
      error.add_context("in the exported program: " + calls_[i].place());
      throw;
    }
    for (const std::size_t value : released_[i]) state.values[value] = c10::IValue();
  }
  for (const auto& [from, to, layer] : mutations_) {
    if (layer && !layers[*layer]->is_training()) continue;
    const at::NoGradGuard no_grad;
    state.values[to].toTensor().copy_(state.values[from].toTensor());
  }
  std::vector<at::Tensor> outputs;
  for (const ProgramOperand& output : outputs_) outputs.push_back(output.get(state).toTensor());
  return outputs;
}

}  // namespace kindling
