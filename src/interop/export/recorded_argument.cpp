#include "interop/export/recorded_argument.h"

#include <ATen/core/Tensor.h>

#include <complex>

#include "interop/run/program_types.h"
#include "kindling/base/error.h"

namespace kindling {
namespace {

using TensorToArgument = std::function<ProgramArgument(const at::Tensor&)>;
using Element = ProgramList::Element;

ProgramType recorded_type(at::ScalarType type) {
  try {
    return program_type_of(type);
  } catch (const Error& error) {
    throw ExportError{error.parts().found, "use " + error.parts().wanted};
  }
}

ProgramMemoryFormat recorded_memory_format(std::int64_t format) {
  switch (static_cast<at::MemoryFormat>(format)) {
    case at::MemoryFormat::ChannelsLast:
      return ProgramMemoryFormat::channels_last;
    case at::MemoryFormat::ChannelsLast3d:
      return ProgramMemoryFormat::channels_last_3d;
    case at::MemoryFormat::Preserve:
      return ProgramMemoryFormat::preserve;
    default:
      return ProgramMemoryFormat::contiguous;
  }
}

ProgramDevice recorded_device(at::Device device) {
  ProgramDevice recorded{.type = c10::DeviceTypeName(device.type(), /*lower_case=*/true)};
  if (device.has_index()) recorded.index = device.index();
  return recorded;
}

// In the dispatcher, dtypes, layouts and memory formats are integers.
ProgramArgument recorded_integer(c10::TypeKind kind, std::int64_t value) {
  switch (kind) {
    case c10::TypeKind::ScalarTypeType:
      return {recorded_type(static_cast<at::ScalarType>(value))};
    case c10::TypeKind::MemoryFormatType:
      return {recorded_memory_format(value)};
    case c10::TypeKind::LayoutType:
      if (static_cast<at::Layout>(value) != at::kStrided)
        throw ExportError{"it uses a layout that is not strided", "use dense tensors"};
      return {StridedLayout{}};
    default:
      return {value};
  }
}

template <class Values, class Make>
ProgramArgument recorded_list(Element element, const Values& values, Make make) {
  ProgramList list{.element = element, .items = {}};
  for (const auto& value : values) list.items.push_back(make(value));
  return {std::move(list)};
}

ProgramArgument plain(auto value) { return {value}; }

// For int[2] in the schema, one number can mean both; not every reader of programs knows that.
std::vector<std::int64_t> all_integers(const c10::Argument& schema, const c10::IValue& value) {
  std::vector<std::int64_t> numbers = value.toIntVector();
  if (schema.N() && numbers.size() == 1) numbers.resize(static_cast<std::size_t>(*schema.N()), numbers[0]);
  return numbers;
}

ProgramArgument recorded_list_argument(const c10::Argument& schema, const c10::IValue& value,
                                       const TensorToArgument& tensor) {
  if (value.isTensorList()) return recorded_list(Element::tensors, value.toTensorVector(), tensor);
  if (value.isIntList())
    return recorded_list(Element::integers, all_integers(schema, value), plain<std::int64_t>);
  if (value.isDoubleList()) return recorded_list(Element::floats, value.toDoubleVector(), plain<double>);
  if (value.isBoolList()) {
    const c10::List<bool> list = value.toBoolList();
    return recorded_list(Element::booleans, std::vector<bool>(list.begin(), list.end()), plain<bool>);
  }
  if (value.isOptionalTensorList())
    return recorded_list(Element::optional_tensors, value.toOptionalTensorVector(),
                         [&](const std::optional<at::Tensor>& one) {
                           return one && one->defined() ? tensor(*one) : ProgramArgument{};
                         });
  throw ExportError{"its argument " + schema.name() + " is a list of " + value.tagKind(), ""};
}

}  // namespace

ProgramTensor recorded_tensor(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided || tensor.is_quantized() || !tensor.has_storage())
    throw ExportError{"it uses a tensor that is not strided", "use dense tensors"};
  ProgramTensor recorded{.type = recorded_type(tensor.scalar_type()),
                         .offset = {.number = tensor.storage_offset()},
                         .requires_grad = tensor.is_leaf() && tensor.requires_grad(),
                         .device = recorded_device(tensor.device())};
  for (const std::int64_t size : tensor.sizes()) recorded.sizes.push_back({.number = size});
  for (const std::int64_t stride : tensor.strides()) recorded.strides.push_back({.number = stride});
  return recorded;
}

ProgramArgument recorded_argument(const c10::Argument& schema, const c10::IValue& value,
                                  const TensorToArgument& tensor) {
  c10::TypePtr type = schema.real_type();
  if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  if (value.isNone() || (value.isTensor() && !value.toTensor().defined())) return {};
  if (value.isTensor()) return tensor(value.toTensor());
  if (value.isBool()) return {value.toBool()};
  if (value.isInt()) return recorded_integer(type->kind(), value.toInt());
  if (value.isDouble()) return {value.toDouble()};
  if (value.isComplexDouble()) {
    const c10::complex<double> number = value.toComplexDouble();
    return {std::complex<double>(number.real(), number.imag())};
  }
  if (value.isString()) return {value.toStringRef()};
  if (value.isDevice()) return {recorded_device(value.toDevice())};
  if (value.isList()) return recorded_list_argument(schema, value, tensor);
  if (value.isGenerator())
    throw ExportError{"it draws from a custom random generator", "draw from LibTorch's default generator"};
  throw ExportError{"its argument " + schema.name() + " is a " + value.tagKind(), ""};
}

}  // namespace kindling
