#include "formats/pt2/pt2_arguments.h"

#include <array>
#include <complex>
#include <utility>

#include "kindling/base/json.h"

namespace kindling {
namespace {

constexpr std::size_t kMaxProgramRank = 64;  // LibTorch's own limit
constexpr std::int64_t kStridedLayout = 7;

ProgramType type_of(const JsonView& value) {
  const std::int64_t number = value.integer();
  if (number < static_cast<std::int64_t>(ProgramType::uint8) ||
      number > static_cast<std::int64_t>(ProgramType::bfloat16))
    value.refuse("the dtype " + std::to_string(number) + " is not supported",
                 "bool, bfloat16 or a type of up to 64 bits");
  return static_cast<ProgramType>(number);
}

ProgramMemoryFormat memory_format_of(const JsonView& value) {
  const std::int64_t number = value.integer();
  if (number < 1 || number > 4) value.refuse("the memory format is unknown");
  return static_cast<ProgramMemoryFormat>(number);
}

StridedLayout layout_of(const JsonView& value) {
  if (value.integer() != kStridedLayout) value.refuse("the layout is not strided", "a dense tensor");
  return {};
}

ProgramDevice device_of(const JsonView& value) {
  ProgramDevice device{.type = value["type"].text()};
  if (value.has("index")) device.index = value["index"].integer();
  return device;
}

NumberName number_name(NumberName::Kind kind, const JsonView& value) {
  return {.kind = kind, .name = value["as_name"].text()};
}

// Returns either the name of a number that the program computes, or the number itself.
ProgramArgument symbolic(NumberName::Kind kind, const JsonView& value) {
  if (value.has("as_name")) return {number_name(kind, value)};
  if (kind == NumberName::Kind::boolean) return {value["as_bool"].boolean()};
  if (kind == NumberName::Kind::floating) return {value["as_float"].number()};
  return {value["as_int"].integer()};
}

ProgramArgument optional_tensor(const JsonView& value) {
  if (value.has("as_tensor")) return {TensorName{value["as_tensor"]["name"].text()}};
  return {std::monostate{}};
}

template <class Read>
ProgramArgument list_of(ProgramList::Element element, const JsonView& value, Read read) {
  ProgramList list{.element = element, .items = {}};
  for (const JsonView& item : value.items()) list.items.push_back({read(item)});
  return {std::move(list)};
}

using Reader = ProgramArgument (*)(const JsonView&);
using Element = ProgramList::Element;
using Number = NumberName::Kind;

// The kinds of an operator's arguments.
constexpr std::array<std::pair<std::string_view, Reader>, 21> kArgumentReaders{{
    {"as_none", [](const JsonView&) { return ProgramArgument{}; }},
    {"as_tensor", [](const JsonView& v) { return ProgramArgument{TensorName{v["name"].text()}}; }},
    {"as_tensors",
     [](const JsonView& v) {
       return list_of(Element::tensors, v,
                      [](const JsonView& item) { return TensorName{item["name"].text()}; });
     }},
    {"as_optional_tensors",
     [](const JsonView& v) {
       ProgramList list{.element = Element::optional_tensors, .items = {}};
       for (const JsonView& item : v.items()) list.items.push_back(optional_tensor(item));
       return ProgramArgument{std::move(list)};
     }},
    {"as_optional_tensor", &optional_tensor},
    {"as_int", [](const JsonView& v) { return ProgramArgument{v.integer()}; }},
    {"as_ints",
     [](const JsonView& v) {
       return list_of(Element::integers, v, [](const JsonView& item) { return item.integer(); });
     }},
    {"as_float", [](const JsonView& v) { return ProgramArgument{v.number()}; }},
    {"as_complex",
     [](const JsonView& v) {
       return ProgramArgument{std::complex<double>(v["real"].number(), v["imag"].number())};
     }},
    {"as_floats",
     [](const JsonView& v) {
       return list_of(Element::floats, v, [](const JsonView& item) { return item.number(); });
     }},
    {"as_bool", [](const JsonView& v) { return ProgramArgument{v.boolean()}; }},
    {"as_bools",
     [](const JsonView& v) {
       return list_of(Element::booleans, v, [](const JsonView& item) { return item.boolean(); });
     }},
    {"as_string", [](const JsonView& v) { return ProgramArgument{v.text()}; }},
    {"as_sym_int", [](const JsonView& v) { return symbolic(Number::integer, v); }},
    {"as_sym_float", [](const JsonView& v) { return symbolic(Number::floating, v); }},
    {"as_sym_bool", [](const JsonView& v) { return symbolic(Number::boolean, v); }},
    {"as_sym_ints",
     [](const JsonView& v) {
       ProgramList list{.element = Element::symbolic_integers, .items = {}};
       for (const JsonView& item : v.items()) list.items.push_back(symbolic(Number::integer, item));
       return ProgramArgument{std::move(list)};
     }},
    {"as_scalar_type", [](const JsonView& v) { return ProgramArgument{type_of(v)}; }},
    {"as_memory_format", [](const JsonView& v) { return ProgramArgument{memory_format_of(v)}; }},
    {"as_layout", [](const JsonView& v) { return ProgramArgument{layout_of(v)}; }},
    {"as_device", [](const JsonView& v) { return ProgramArgument{device_of(v)}; }},
}};

}  // namespace

ProgramSize size_of(const JsonView& value) {
  const auto [kind, given] = value.only_member();
  if (kind == "as_int") return {.number = given.integer()};
  if (kind != "as_expr") value.refuse("it is neither an integer nor an expression");
  ProgramSize size{.expression = given["expr_str"].text()};
  if (given.has("hint")) {
    const auto [hint, number] = given["hint"].only_member();
    if (hint == "as_int") size.number = number.integer();
  }
  return size;
}

ProgramArgument argument_of(const JsonView& value) {
  const auto [kind, given] = value.only_member();
  for (const auto& [name, read] : kArgumentReaders)
    if (name == kind) return read(given);
  if (kind == "as_graph")
    value.refuse("it is part of control flow or of autocast (cond, while_loop, torch.autocast, …)",
                 "a program without them; no_grad and autocast that is off are supported",
                 "export a forward whose branches do not depend on tensor values");
  value.refuse("arguments of the kind " + json_string(kind) + " are not supported");
}

ProgramTensor tensor_of(const JsonView& meta) {
  layout_of(meta["layout"]);
  ProgramTensor tensor{.type = type_of(meta["dtype"]),
                       .offset = size_of(meta["storage_offset"]),
                       .requires_grad = meta["requires_grad"].boolean(),
                       .device = device_of(meta["device"])};
  for (const JsonView& size : meta["sizes"].items()) tensor.sizes.push_back(size_of(size));
  for (const JsonView& stride : meta["strides"].items()) tensor.strides.push_back(size_of(stride));
  if (tensor.sizes.size() != tensor.strides.size() || tensor.sizes.size() > kMaxProgramRank)
    meta.refuse("the numbers of sizes and strides differ");
  return tensor;
}

}  // namespace kindling
