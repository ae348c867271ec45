#include "programs/program_call.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "kindling/base/error.h"
#include "kindling/base/json.h"
#include "kindling/base/suggest.h"
#include "kindling/base/text.h"
#include "programs/listed_operators.h"

namespace kindling {
namespace {

constexpr std::string_view kAtenPrefix = "torch.ops.aten.";

[[noreturn]] void refuse_call(const std::string& place, const std::string& found,
                              const std::string& wanted = "", const std::string& remedy = "") {
  throw CheckpointError({.place = place, .found = found, .wanted = wanted, .remedy = remedy});
}

bool is_of_decomposed_training(const std::string& packet) {
  return packet.starts_with("_native_batch_norm_legit") || packet == "_native_batch_norm_legit_functional";
}

[[noreturn]] void refuse_operator(const std::string& place, const ProgramNode& node,
                                  const std::string& packet) {
  if (is_of_decomposed_training(packet))
    refuse_call(place, "the program has been decomposed in training mode, and cannot be differentiated",
                "a program as torch.export.export makes it", "leave out run_decompositions()");
  if (packet == "item" || packet == "_local_scalar_dense" || packet == "nonzero")
    refuse_call(place, "the program depends on values of its tensors",
                "a forward whose sizes depend on sizes alone");
  if (!node.target.starts_with(kAtenPrefix))
    refuse_call(place, "it is no operator of aten", "operators of aten and arithmetic of sizes",
                "export a model without operators of its own");
  const std::vector<std::string> listed(listed_operators().begin(), listed_operators().end());
  const std::string close = nearest(packet, listed);
  refuse_call(place, "the operator is not one of those that a program from a file may call",
              close.empty() ? "" : "one that is listed, such as " + close);
}

// Numbers about tensors that LibTorch would check once more, and that fail where a program has moved.
bool is_assertion_about_tensors(const std::string& target) {
  static const std::set<std::string> targets{"torch.ops.aten._assert_tensor_metadata.default",
                                             "torch.ops.aten.sym_constrain_range_for_size.default",
                                             "torch.ops.aten.sym_constrain_range.default"};
  return targets.contains(target);
}

}  // namespace

ProgramCall::ProgramCall(const ProgramNode& node, ProgramNames& names)
    : place_((node.layer.empty() ? "" : "layer " + one_line(node.layer) + ", ") + one_line(node.target)),
      with_gradients_(node.with_gradients) {
  if (is_assertion_about_tensors(node.target)) {
    function_ = [](std::span<const c10::IValue>) { return c10::IValue(); };
    return;
  }
  try {
    resolve(node);
    take_arguments(node, names);
    find_mode();
    name_results(node, names);
  } catch (const CheckpointError& error) {
    ErrorParts parts = error.parts();
    if (parts.place.find(place_) == std::string::npos) parts.place = place_ + ", " + parts.place;
    throw CheckpointError(parts);
  }
}

void ProgramCall::resolve(const ProgramNode& node) {
  function_ = number_function(node.target);
  if (function_ != nullptr) return;
  const std::string path =
      node.target.starts_with(kAtenPrefix) ? node.target.substr(kAtenPrefix.size()) : node.target;
  const std::size_t dot = path.find('.');
  name_ = path.substr(0, dot);
  if (!node.target.starts_with(kAtenPrefix) || dot == std::string::npos ||
      !listed_operators().contains(name_))
    refuse_operator(place_, node, name_);
  const std::string overload = path.substr(dot + 1);
  operator_ = c10::Dispatcher::singleton().findSchema(
      {"aten::" + name_, overload == "default" ? std::string() : overload});
  if (!operator_) refuse_call(place_, "this LibTorch has no such operator");
}

void ProgramCall::take_arguments(const ProgramNode& node, ProgramNames& names) {
  if (function_ != nullptr) {
    for (const ProgramNode::Input& input : node.inputs)
      arguments_.push_back(ProgramOperand::of_number(input.argument, names));
    return;
  }
  const auto& wanted = operator_->schema().arguments();
  std::set<std::string> given;
  for (const ProgramNode::Input& input : node.inputs)
    if (!given.insert(input.name).second)
      refuse_call(place_, "the argument " + json_string(input.name) + " is given twice");
  for (const c10::Argument& argument : wanted) {
    const auto input = std::ranges::find(node.inputs, argument.name(), &ProgramNode::Input::name);
    given.erase(argument.name());
    if (input == node.inputs.end()) {
      if (!argument.default_value())
        refuse_call(place_, "the argument " + json_string(argument.name()) + " is missing");
      arguments_.emplace_back(*argument.default_value());
      continue;
    }
    try {
      arguments_.push_back(ProgramOperand::of(input->argument, argument.real_type(), argument.N(), names));
    } catch (const CheckpointError& error) {
      ErrorParts parts = error.parts();
      parts.place = place_ + ", argument " + json_string(argument.name());
      throw CheckpointError(parts);
    }
  }
  if (!given.empty()) refuse_call(place_, "the operator has no argument " + json_string(*given.begin()));
}

// Dropout, batch norm and the recurrent layers say by an argument whether they are in training mode.
void ProgramCall::find_mode() {
  if (function_ != nullptr) return;
  const auto& wanted = operator_->schema().arguments();
  const auto off = [&](std::size_t number, const c10::IValue& value, bool is_on) {
    has_mode_ = true;
    if (is_on) evaluation_arguments_.emplace_back(number, value);
  };
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const c10::IValue* const constant = arguments_[i].constant();
    if (constant == nullptr) continue;
    const std::string& argument = wanted[i].name();
    if ((argument == "train" || argument == "training") && constant->isBool())
      off(i, false, constant->toBool());
    if (argument == "dropout_p" && constant->isDouble() && constant->toDouble() > 0) off(i, 0.0, true);
    // Without running statistics an instance norm is the same in both modes.
    if (argument == "use_input_stats" && constant->isBool() && arguments_[3].value())
      off(i, false, constant->toBool());
  }
}

void ProgramCall::name_results(const ProgramNode& node, ProgramNames& names) {
  const std::size_t num_results = operator_ ? operator_->schema().returns().size() : 1;
  if (!operator_ && node.outputs.empty()) return;  // an assertion
  if (node.outputs.size() != num_results)
    refuse_call(place_, "it has " + std::to_string(node.outputs.size()) + " results",
                std::to_string(num_results) + ", as the operator's schema says");
  for (std::size_t i = 0; i < num_results; ++i) {
    const ProgramArgument& output = node.outputs[i];
    const bool gives_list =
        operator_ && operator_->schema().returns()[i].type()->kind() == c10::TypeKind::ListType;
    auto& numbers = results_.emplace_back();
    is_list_.push_back(gives_list);
    if (const auto* name = std::get_if<TensorName>(&output.value); name && operator_ && !gives_list)
      numbers.push_back(names.add(name->name, ProgramNames::Kind::tensor));
    else if (const auto* number = std::get_if<NumberName>(&output.value); number && !operator_)
      numbers.push_back(names.add(number->name, ProgramNames::kind_of(number->kind)));
    else if (const auto* list = std::get_if<ProgramList>(&output.value);
             list && gives_list && list->of == ProgramList::Of::tensors)
      for (const ProgramArgument& item : list->items)
        numbers.push_back(names.add(std::get<TensorName>(item.value).name, ProgramNames::Kind::tensor));
    else if (!std::holds_alternative<std::monostate>(output.value))
      refuse_call(place_, "a result is of another kind than the operator's schema says");
  }
}

void ProgramCall::run(ProgramState& state, bool in_evaluation, torch::jit::Stack& stack) const {
  if (in_evaluation && is_skipped_in_evaluation_) {
    state.values[results_[0][0]] = arguments_[0].get(state);
    return;
  }
  stack.clear();
  for (const ProgramOperand& argument : arguments_) stack.push_back(argument.get(state));
  if (in_evaluation)
    for (const auto& [number, value] : evaluation_arguments_) stack[number] = value;
  if (!operator_) {
    const c10::IValue result = function_(stack);
    if (!results_.empty() && !results_[0].empty()) state.values[results_[0][0]] = result;
    return;
  }
  std::optional<at::AutoGradMode> gradients;
  if (with_gradients_) gradients.emplace(*with_gradients_ && at::GradMode::is_enabled());
  operator_->callBoxed(stack);
  take_results(state, stack);
}

void ProgramCall::take_results(ProgramState& state, torch::jit::Stack& stack) const {
  for (std::size_t i = 0; i < results_.size(); ++i) {
    const std::vector<std::size_t>& numbers = results_[i];
    if (!is_list_[i]) {
      if (!numbers.empty()) state.values[numbers[0]] = std::move(stack[i]);
      continue;
    }
    const std::vector<at::Tensor> list = stack[i].toTensorVector();
    if (list.size() != numbers.size())
      throw Error({.place = place_,
                   .found = "the operator gives " + std::to_string(list.size()) + " tensors",
                   .wanted = std::to_string(numbers.size()) + ", as when the program was exported"});
    for (std::size_t k = 0; k < list.size(); ++k) state.values[numbers[k]] = list[k];
  }
}

}  // namespace kindling
