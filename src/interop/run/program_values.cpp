#include "interop/run/program_values.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/Tensor.h>

#include <complex>
#include <utility>

#include "interop/run/program_types.h"
#include "kindling/base/error.h"
#include "kindling/base/json.h"

namespace kindling {
namespace {

[[noreturn]] void refuse_value(const std::string& found, const std::string& wanted = "") {
  throw CheckpointError({.place = "a value", .found = found, .wanted = wanted});
}

template <class T>
const T* is(const ProgramArgument& argument) {
  return std::get_if<T>(&argument.value);
}

bool is_none(const ProgramArgument& argument) { return is<std::monostate>(argument) != nullptr; }

// Wraps a number like Python does in the place of a tensor: it does not determine the dtype of the result.
at::Tensor wrapped_number(const c10::IValue& number) {
  at::Tensor tensor = c10::scalar_to_tensor(number.toScalar());
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

std::optional<c10::IValue> constant_number(const ProgramArgument& argument) {
  if (const auto* number = is<bool>(argument)) return c10::IValue(*number);
  if (const auto* number = is<std::int64_t>(argument)) return c10::IValue(*number);
  if (const auto* number = is<double>(argument)) return c10::IValue(*number);
  if (const auto* number = is<std::complex<double>>(argument))
    return c10::IValue(c10::complex<double>(number->real(), number->imag()));
  return {};
}

}  // namespace

ProgramNames::Kind ProgramNames::kind_of(NumberName::Kind kind) {
  switch (kind) {
    case NumberName::Kind::integer:
      return Kind::integer;
    case NumberName::Kind::floating:
      return Kind::floating;
    case NumberName::Kind::boolean:
      break;
  }
  return Kind::boolean;
}

std::size_t ProgramNames::add(const std::string& name, Kind kind) {
  const std::size_t number = last_users_.size();
  if (!values_.emplace(name, Value{number, kind}).second)
    refuse_value("two values have the name " + json_string(name));
  last_users_.push_back(call_);
  return number;
}

std::size_t ProgramNames::use(const std::string& name, Kind kind) {
  const auto found = values_.find(name);
  if (found == values_.end()) refuse_value(json_string(name) + " is used before it is defined");
  if (found->second.kind != kind) refuse_value(json_string(name) + " has an unexpected type");
  last_users_[found->second.number] = call_;
  return found->second.number;
}

std::optional<ProgramNames::Value> ProgramNames::find(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? std::nullopt : std::optional(found->second);
}

ProgramOperand ProgramOperand::of_tensor(const ProgramArgument& argument, ProgramNames& names) {
  if (const auto* name = is<TensorName>(argument))
    return {Kind::value, names.use(name->name, ProgramNames::Kind::tensor)};
  if (const auto* name = is<NumberName>(argument))
    return {Kind::tensor_of, names.use(name->name, ProgramNames::kind_of(name->kind))};
  if (const auto number = constant_number(argument)) return ProgramOperand(wrapped_number(*number));
  refuse_value("it is not a tensor", "a tensor or a number");
}

ProgramOperand ProgramOperand::of_integer(const ProgramArgument& argument, ProgramNames& names) {
  if (const auto* number = is<std::int64_t>(argument)) return ProgramOperand(*number);
  if (const auto* name = is<NumberName>(argument); name && name->kind == NumberName::Kind::integer)
    return {Kind::value, names.use(name->name, ProgramNames::Kind::integer)};
  refuse_value("it is not an integer", "an integer");
}

ProgramOperand ProgramOperand::of_float(const ProgramArgument& argument, ProgramNames& names) {
  if (const auto* number = is<double>(argument)) return ProgramOperand(*number);
  if (const auto* number = is<std::int64_t>(argument)) return ProgramOperand(static_cast<double>(*number));
  if (const auto* name = is<NumberName>(argument); name && name->kind != NumberName::Kind::boolean)
    return {Kind::float_of, names.use(name->name, ProgramNames::kind_of(name->kind))};
  refuse_value("it is not a number", "a floating-point number");
}

ProgramOperand ProgramOperand::of_number(const ProgramArgument& argument, ProgramNames& names) {
  if (const auto number = constant_number(argument)) return ProgramOperand(*number);
  if (const auto* text = is<std::string>(argument)) return ProgramOperand(*text);
  if (const auto* name = is<TensorName>(argument))
    return {Kind::value, names.use(name->name, ProgramNames::Kind::tensor)};
  if (const auto* name = is<NumberName>(argument))
    return {Kind::value, names.use(name->name, ProgramNames::kind_of(name->kind))};
  refuse_value("it is not a number", "a number, or a tensor whose size is requested");
}

ProgramOperand ProgramOperand::of_list(const ProgramArgument& argument, const c10::TypePtr& wanted,
                                       std::optional<std::int32_t> fixed_size, ProgramNames& names) {
  const c10::TypePtr element = wanted->castRaw<c10::ListType>()->getElementType();
  const auto* list = is<ProgramList>(argument);
  if (list == nullptr) {  // one number for all items of "int[2]"
    const ProgramOperand one = of(argument, element, {}, names);
    if (one.constant() == nullptr || !one.constant()->isInt()) refuse_value("it is not a list", "a list");
    return ProgramOperand(
        std::vector<std::int64_t>(static_cast<std::size_t>(fixed_size.value_or(1)), one.constant()->toInt()));
  }
  ProgramOperand made{c10::IValue()};
  for (const ProgramArgument& item : list->items) made.items_.push_back(of(item, element, {}, names));
  switch (element->kind()) {
    case c10::TypeKind::TensorType:
      made.kind_ = Kind::tensors;
      break;
    case c10::TypeKind::OptionalType:
      made.kind_ = Kind::optional_tensors;
      break;
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      made.kind_ = Kind::integers;
      break;
    case c10::TypeKind::FloatType: {
      std::vector<double> numbers;
      for (const ProgramOperand& item : made.items_)
        numbers.push_back(item.constant() != nullptr ? item.constant()->toDouble() : 0);
      for (const ProgramOperand& item : made.items_)
        if (item.constant() == nullptr) refuse_value("a list contains numbers that the program computes");
      return ProgramOperand(std::move(numbers));
    }
    case c10::TypeKind::BoolType: {
      c10::List<bool> flags;
      for (const ProgramOperand& item : made.items_) {
        if (item.constant() == nullptr) refuse_value("a list contains booleans that the program computes");
        flags.push_back(item.constant()->toBool());
      }
      return ProgramOperand(c10::IValue(flags));
    }
    default:
      refuse_value("lists of " + element->str() + " are not supported");
  }
  return made;
}

ProgramOperand ProgramOperand::of(const ProgramArgument& argument, const c10::TypePtr& wanted,
                                  std::optional<std::int32_t> fixed_size, ProgramNames& names) {
  switch (wanted->kind()) {
    case c10::TypeKind::OptionalType:
      if (is_none(argument)) return ProgramOperand(c10::IValue());
      return of(argument, wanted->castRaw<c10::OptionalType>()->getElementType(), fixed_size, names);
    case c10::TypeKind::TensorType:
      return of_tensor(argument, names);
    case c10::TypeKind::ListType:
      return of_list(argument, wanted, fixed_size, names);
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return of_integer(argument, names);
    case c10::TypeKind::FloatType:
      return of_float(argument, names);
    case c10::TypeKind::NumberType:
      if (is<TensorName>(argument) || is<std::string>(argument)) break;
      return of_number(argument, names);
    case c10::TypeKind::BoolType:
      if (const auto* flag = is<bool>(argument)) return ProgramOperand(*flag);
      if (const auto* name = is<NumberName>(argument); name && name->kind == NumberName::Kind::boolean)
        return {Kind::value, names.use(name->name, ProgramNames::Kind::boolean)};
      break;
    case c10::TypeKind::StringType:
      if (const auto* text = is<std::string>(argument)) return ProgramOperand(*text);
      break;
    case c10::TypeKind::ScalarTypeType:
      if (const auto* type = is<ProgramType>(argument))
        return ProgramOperand(static_cast<std::int64_t>(scalar_type_of(*type)));
      break;
    case c10::TypeKind::MemoryFormatType:
      if (const auto* format = is<ProgramMemoryFormat>(argument))
        return ProgramOperand(static_cast<std::int64_t>(memory_format_of(*format)));
      break;
    case c10::TypeKind::LayoutType:
      if (is<StridedLayout>(argument)) return ProgramOperand(static_cast<std::int64_t>(at::kStrided));
      break;
    case c10::TypeKind::DeviceObjType:
      if (const auto* device = is<ProgramDevice>(argument)) {
        if (device_of(*device).type() != device_of(names.home()).type())
          refuse_value("it is on the device " + json_string(device->type), "a program on one device");
        return {Kind::device, 0};
      }
      break;
    default:
      break;
  }
  refuse_value("it does not match the schema of the operator", wanted->str());
}

std::optional<std::size_t> ProgramOperand::value() const noexcept {
  return kind_ == Kind::value ? std::optional(value_) : std::nullopt;
}

std::vector<std::size_t> ProgramOperand::values() const {
  std::vector<std::size_t> found;
  if (kind_ == Kind::value) found.push_back(value_);
  for (const ProgramOperand& item : items_)
    if (item.kind_ == Kind::value) found.push_back(item.value_);
  return found;
}

c10::IValue ProgramOperand::get(const ProgramState& state) const {
  switch (kind_) {
    case Kind::constant:
      return constant_;
    case Kind::value:
      return state.values[value_];
    case Kind::device:
      return state.device;
    case Kind::tensor_of:
      return wrapped_number(state.values[value_]);
    case Kind::float_of:
      return state.values[value_].toScalar().toDouble();
    case Kind::tensors: {
      c10::List<at::Tensor> list;
      for (const ProgramOperand& item : items_) list.push_back(item.get(state).toTensor());
      return list;
    }
    case Kind::optional_tensors: {
      c10::List<std::optional<at::Tensor>> list;
      for (const ProgramOperand& item : items_) {
        const c10::IValue value = item.get(state);
        list.push_back(value.isNone() ? std::nullopt : std::optional(value.toTensor()));
      }
      return list;
    }
    case Kind::integers: {
      std::vector<std::int64_t> list;
      for (const ProgramOperand& item : items_) list.push_back(item.get(state).toInt());
      return list;
    }
  }
  return {};
}

}  // namespace kindling
