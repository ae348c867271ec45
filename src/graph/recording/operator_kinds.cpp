#include "graph/recording/operator_kinds.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string_view>

namespace kindling {
namespace {

bool is_one_of(const c10::OperatorHandle& op, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, std::string_view(op.schema().name())) != names.end();
}

// True if an operator has an effect other than the tensors that it returns and the arguments that it writes.
bool tells_host(const c10::OperatorHandle& op) {
  const auto& schema = op.schema();
  const auto is_tensor = [](const c10::Argument& result) {
    return result.type()->str().find("Tensor") != std::string::npos;
  };
  const auto is_written = [](const c10::Argument& argument) {
    return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
  };
  if (schema.returns().empty()) return std::ranges::none_of(schema.arguments(), is_written);
  return !std::ranges::all_of(schema.returns(), is_tensor);
}

// True for an index that selects as many elements as it has true values; numeric indices select one each.
bool is_mask(const std::optional<at::Tensor>& index) {
  return index && (index->scalar_type() == at::kBool || index->scalar_type() == at::kByte);
}

}  // namespace

bool only_makes_memory(const c10::OperatorHandle& op) {
  return is_one_of(op, {"aten::empty", "aten::empty_strided", "aten::empty_like", "aten::new_empty",
                        "aten::new_empty_strided"});
}

bool is_view(const c10::OperatorHandle& op) {
  if (op.hasTag(at::Tag::inplace_view)) return true;  // the tensor itself becomes a view
  const auto& returns = op.schema().returns();
  return !returns.empty() && std::ranges::all_of(returns, [](const c10::Argument& result) {
    return result.alias_info() != nullptr && !result.alias_info()->isWrite();
  });
}

bool writes_to(const c10::OperatorHandle& op, std::size_t number) {
  if (is_view(op)) return false;
  const c10::Argument& argument = op.schema().arguments()[number];
  if (argument.alias_info() != nullptr && argument.alias_info()->isWrite()) return true;
  // Batch norm updates its running statistics.
  return is_one_of(op, {"aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm"}) &&
         (argument.name() == "running_mean" || argument.name() == "running_var");
}

bool overwrites(const c10::OperatorHandle& op, std::size_t argument) {
  if (!writes_to(op, argument)) return false;
  return op.schema().arguments()[argument].is_out() ||
         is_one_of(op, {"aten::copy_", "aten::fill_", "aten::zero_", "aten::normal_", "aten::uniform_",
                        "aten::bernoulli_", "aten::random_", "aten::exponential_"});
}

std::string why_not_recordable(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments) {
  const std::string& name = op.schema().name();
  if (name == "aten::index" && std::ranges::none_of(arguments[1].toOptionalTensorVector(), is_mask))
    return {};
  if (op.hasTag(at::Tag::data_dependent_output) || op.hasTag(at::Tag::dynamic_output_shape))
    return "it calls " + name + ", whose result the host reads";
  if (is_one_of(op, {"aten::set_", "aten::resize_", "aten::resize_as_", "aten::set_data"}))
    return "it calls " + name + ", which changes a tensor's memory";
  if (!name.starts_with("aten::") && tells_host(op))
    return "it calls " + name + ", which does not return a tensor";
  return {};
}

}  // namespace kindling
