#include "programs/operator_refusal.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/is_set_to.h>

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "programs/no_program.h"

namespace kindling {
namespace {

bool is_any_of(const c10::OperatorHandle& op, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, std::string_view(op.schema().name())) != names.end();
}

bool gives_tensors(const c10::OperatorHandle& op) {
  return std::ranges::any_of(op.schema().returns(), [](const c10::Argument& result) {
    return result.type()->str().find("Tensor") != std::string::npos;
  });
}

bool writes_any(const c10::OperatorHandle& op) {
  return std::ranges::any_of(op.schema().arguments(), [](const c10::Argument& argument) {
    return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
  });
}

const c10::IValue& argument_in(const c10::OperatorHandle& op, const torch::jit::Stack& stack,
                               std::size_t number) {
  return stack[stack.size() - op.schema().arguments().size() + number];
}

bool reads_values(const c10::OperatorHandle& op) {
  return op.hasTag(at::Tag::data_dependent_output) || is_any_of(op, {"aten::is_nonzero", "aten::item"});
}

// Attention asks whether it attends to itself: where two tensors lie tells that without their values.
bool is_told_by_layout(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  if (!is_any_of(op, {"aten::equal"})) return false;
  const at::Tensor &one = argument_in(op, stack, 0).toTensor(), &other = argument_in(op, stack, 1).toTensor();
  return one.sizes() != other.sizes() || one.is_set_to(other);
}

// The composites among them have no tag.
bool has_unknown_shape(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  if (is_any_of(op, {"aten::one_hot"})) return argument_in(op, stack, 1).toInt() < 0;  // as many as there are
  if (op.hasTag(at::Tag::dynamic_output_shape)) return true;
  if (is_any_of(op, {"aten::nonzero_numpy", "aten::_pack_padded_sequence", "aten::unique_consecutive"}))
    return true;
  if (is_any_of(op, {"aten::where"})) return op.schema().arguments().size() == 1;
  if (is_any_of(op, {"aten::tensor_split", "aten::repeat_interleave"}))
    return op.schema().arguments()[1].type()->kind() == c10::TypeKind::TensorType;
  if (!is_any_of(op, {"aten::index"})) return false;
  const auto is_mask = [](const std::optional<at::Tensor>& index) {
    return index && index->defined() &&
           (index->scalar_type() == at::kBool || index->scalar_type() == at::kByte);
  };
  return std::ranges::any_of(argument_in(op, stack, 1).toOptionalTensorVector(), is_mask);
}

}  // namespace

bool asks_for_layout(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  return op.schema().name().starts_with("aten::") && !gives_tensors(op) && !writes_any(op) &&
         !op.schema().returns().empty() && (!reads_values(op) || is_told_by_layout(op, stack));
}

void require_program_operator(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  if (!op.schema().name().starts_with("aten::"))
    throw NoProgram{"it is none of PyTorch's own operators",
                    "write this part of the forward with operators of ATen"};
  if (reads_values(op))
    throw NoProgram{"the host reads a value, on which the program may then depend",
                    "compute with the tensor instead"};
  if (has_unknown_shape(op, stack))
    throw NoProgram{"the shape of its result depends on values of the batch",
                    "take an operator whose result has a known shape, such as torch::where with a mask"};
  if (is_any_of(op, {"aten::set_", "aten::set_data", "aten::resize_", "aten::resize_as_"}))
    throw NoProgram{"it gives a tensor other memory", "make a new tensor"};
}

}  // namespace kindling
