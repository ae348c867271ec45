#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "interop/run/program_values.h"

namespace kindling {

// What programs compute with sizes, on the host: integers, floats and booleans with Python's meaning.
using NumberFunction = c10::IValue (*)(std::span<const c10::IValue> arguments);

// One call of a program: an operator, resolved once, or a function of numbers.
class ProgramCall {
 public:
  // Gives its results names. Throws CheckpointError for operators that are not listed, and for arguments that
  // do not fit the schema of this LibTorch.
  ProgramCall(const ProgramNode& node, ProgramNames& names);

  // `in_evaluation`: what works otherwise in training, such as dropout, does not.
  void run(ProgramState& state, bool in_evaluation, torch::jit::Stack& stack) const;

  // Whether it works otherwise in evaluation, and whether it was recorded so.
  bool has_mode() const noexcept { return has_mode_; }
  bool is_in_training_mode() const noexcept { return !evaluation_arguments_.empty(); }
  bool depends_on_mode() const noexcept { return is_in_training_mode() || is_skipped_in_evaluation_; }
  // In evaluation its result is its first argument, unchanged.
  void skip_in_evaluation() noexcept { is_skipped_in_evaluation_ = true; }

  const std::string& operator_name() const noexcept {
    return name_;
  }  // "add_", empty for functions of numbers
  const std::vector<ProgramOperand>& arguments() const noexcept { return arguments_; }
  const std::string& place() const noexcept {
    return place_;
  }  // "layer net.1, torch.ops.aten.conv2d.default"

 private:
  void resolve(const ProgramNode& node);
  void take_arguments(const ProgramNode& node, ProgramNames& names);
  void find_mode();
  void name_results(const ProgramNode& node, ProgramNames& names);
  void take_results(ProgramState& state, torch::jit::Stack& stack) const;

  std::string place_, name_;
  std::optional<c10::OperatorHandle> operator_;
  NumberFunction function_ = nullptr;
  std::vector<ProgramOperand> arguments_;
  // By the operator's results: the values that they are, several for a list, none for what nobody uses.
  std::vector<std::vector<std::size_t>> results_;
  std::vector<bool> is_list_;
  std::vector<std::pair<std::size_t, c10::IValue>> evaluation_arguments_;  // in place of those recorded
  std::optional<bool> with_gradients_;                                     // nothing: as around it
  bool has_mode_ = false, is_skipped_in_evaluation_ = false;
};

}  // namespace kindling
