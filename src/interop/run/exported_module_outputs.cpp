#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "interop/run/exported_module_program.h"
#include "kindling/base/error.h"

// The outputs of exported programs, with the names that they have in Python.
namespace kindling {
namespace {

// Nests the outputs of a program as its results in Python, without leaves that are not tensors.
class NestedOutputs {
 public:
  NestedOutputs(const ExportedProgram& program, std::vector<at::Tensor> tensors, bool drops_first)
      : results_(program.results), tensors_(std::move(tensors)), drops_first_(drops_first) {
    using Kind = ProgramOutput::Kind;
    for (const ProgramOutput& output : program.outputs)
      if (output.kind == Kind::user || output.kind == Kind::loss)
        are_tensors_.push_back(std::holds_alternative<TensorName>(output.argument.value));
  }

  Batch batch() {
    const std::size_t dropped = drops_first_ ? 1 : 0;
    if (results_.kind != ProgramTree::Kind::dict && tensors_.size() == dropped + 1)
      return Batch::leaf(tensors_[dropped]);
    if (num_leaves(results_) == are_tensors_.size())
      if (std::optional<Batch> nested = part(results_)) return *nested;
    return Batch(std::vector(tensors_.begin() + static_cast<std::ptrdiff_t>(dropped), tensors_.end()));
  }

 private:
  static std::size_t num_leaves(const ProgramTree& tree) {
    if (tree.kind == ProgramTree::Kind::leaf) return 1;
    std::size_t count = 0;
    for (const ProgramTree& each : tree.parts) count += num_leaves(each);
    return count;
  }

  std::optional<Batch> part(const ProgramTree& tree) {
    if (tree.kind == ProgramTree::Kind::leaf) {
      if (!are_tensors_[leaf_++]) return std::nullopt;
      const std::size_t number = tensor_++;
      if (drops_first_ && number == 0) return std::nullopt;
      return Batch::leaf(tensors_[number]);
    }
    const bool has_names = tree.kind == ProgramTree::Kind::dict;
    std::vector<Batch> parts;
    std::vector<std::pair<std::string, Batch>> named;
    for (std::size_t i = 0; i < tree.parts.size(); ++i) {
      std::optional<Batch> found = part(tree.parts[i]);
      if (!found) continue;
      if (has_names)
        named.emplace_back(tree.names[i], std::move(*found));
      else
        parts.push_back(std::move(*found));
    }
    if (parts.empty() && named.empty()) return std::nullopt;
    return has_names ? Batch::map(named) : Batch::list(parts);
  }

  const ProgramTree& results_;
  std::vector<at::Tensor> tensors_;
  bool drops_first_;
  std::vector<bool> are_tensors_{};  // by leaf of the results
  std::size_t leaf_ = 0, tensor_ = 0;
};

}  // namespace

std::vector<at::Tensor> ExportedModule::outputs_without_loss(const Batch& batch) {
  std::vector<at::Tensor> outputs = run(inputs_in(batch));
  if (!is_loss_output()) return outputs;
  if (outputs.size() < 2)
    throw DataError({.place = "ExportedModule",
                     .found = "the only output of the program is its loss",
                     .wanted = "a program that also returns its predictions",
                     .remedy = "return (loss, predictions) in forward, and export the model again"});
  outputs.erase(outputs.begin());
  return outputs;
}

Batch ExportedModule::nested(std::vector<at::Tensor> outputs, bool drops_first) const {
  const ExportedProgram& program =
      uses_evaluation_program() ? program_->evaluation->program() : program_->file.program();
  return NestedOutputs(program, std::move(outputs), drops_first).batch();
}

Batch ExportedModule::predict_outputs(const Batch& batch) {
  std::vector<at::Tensor> outputs = outputs_without_loss(batch);
  if (is_loss_output()) outputs.insert(outputs.begin(), at::Tensor());
  return nested(std::move(outputs), /*drops_first=*/is_loss_output());
}

Batch ExportedModule::export_outputs(const Batch& batch) {
  std::vector<at::Tensor> outputs = run(inputs_in(batch));
  const bool drops_loss = is_loss_output() && !is_training() && outputs.size() > 1;
  return nested(std::move(outputs), drops_loss);
}

}  // namespace kindling
