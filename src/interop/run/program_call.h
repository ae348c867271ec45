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

// A number that a program computes on the host: an integer, float or boolean with Python's semantics.
using NumberFunction = c10::IValue (*)(std::span<const c10::IValue> arguments);

// A call in a program: an operator, resolved once, or a function of numbers.
class ProgramCall {
 public:
  // Registers the names of its results. Throws CheckpointError for operators that are not listed, and for
  // arguments that do not match the schema of this LibTorch.
  ProgramCall(const ProgramNode& node, ProgramNames& names);

  // `in_evaluation`: operators with a training mode, such as dropout, run in evaluation mode.
  void run(ProgramState& state, bool in_evaluation, torch::jit::Stack& stack) const;

  // True if the operator has a training mode; true if it was recorded in that mode.
  bool has_mode() const noexcept { return has_mode_; }
  bool is_in_training_mode() const noexcept { return !evaluation_arguments_.empty(); }
  bool depends_on_mode() const noexcept { return is_in_training_mode() || is_skipped_in_evaluation_; }
  // True if it draws random numbers in evaluation mode, too, unlike dropout.
  bool draws_in_evaluation() const noexcept;
  // In evaluation mode, returns its first argument unchanged.
  void skip_in_evaluation() noexcept { is_skipped_in_evaluation_ = true; }

  // The values that it modifies in place in evaluation mode.
  std::vector<std::size_t> written_values() const;
  // The values whose memory its results may share, if it is such an operator.
  std::vector<std::size_t> viewed_values() const;
  std::vector<std::size_t> results() const;

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
  // The values of each result: several for a list, none for an unused result.
  std::vector<std::vector<std::size_t>> results_;
  std::vector<bool> is_list_;
  std::vector<std::pair<std::size_t, c10::IValue>> evaluation_arguments_;  // replace the recorded arguments
  std::optional<bool> with_gradients_;                                     // empty: as in the caller
  std::vector<std::string> autocast_off_;                                  // types of devices
  bool has_mode_ = false, is_skipped_in_evaluation_ = false;
  bool is_grouped_product_ = false;
};

}  // namespace kindling
