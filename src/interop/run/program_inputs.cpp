#include "interop/run/program_inputs.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>

#include "interop/run/program_types.h"
#include "kindling/base/error.h"
#include "kindling/base/json.h"
#include "kindling/base/text.h"

namespace kindling {
namespace {

// A symbol times a factor.
struct SymbolMultiple {
  std::string symbol;  // empty: another expression
  std::int64_t factor = 1;
};

// Parses "Symbol('s0', positive=True, integer=True)" and "Mul(Integer(8), Symbol('s0', …))".
SymbolMultiple symbol_of(const ProgramSize& size) {
  constexpr std::string_view kProduct = "Mul(Integer(", kSymbol = "Symbol('";
  std::string_view rest = size.expression;
  SymbolMultiple found;
  if (rest.starts_with(kProduct)) {
    rest.remove_prefix(kProduct.size());
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), found.factor);
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    if (error != std::errc() || found.factor < 1 || !rest.starts_with("), ")) return {};
    rest.remove_prefix(3);
  }
  if (!rest.starts_with(kSymbol) || rest.find('(', kSymbol.size()) != rest.npos) return {};
  rest.remove_prefix(kSymbol.size());
  found.symbol = rest.substr(0, rest.find('\''));
  return found;
}

std::string shape_text_of(const ProgramTensor& tensor) {
  std::string text;
  for (const ProgramSize& size : tensor.sizes) {
    const auto [symbol, factor] = symbol_of(size);
    const std::string times = factor == 1 ? "" : std::to_string(factor) + " * ";
    text += (text.empty() ? "" : ", ") + (size.expression.empty() ? std::to_string(size.number)
                                          : symbol.empty()        ? "?"
                                                                  : times + one_line(symbol));
  }
  return std::string(c10::toString(scalar_type_of(tensor.type))) + " [" + text + "]";
}

std::string text_of_input(const at::Tensor& tensor) {
  std::string text;
  for (const std::int64_t size : tensor.sizes()) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return std::string(c10::toString(tensor.scalar_type())) + " [" + text + "]";
}

// Returns true if the program has parameters, none of which is float64.
bool has_narrow_weights(const ExportedProgram& program) {
  bool has_parameters = false;
  for (const ProgramInput& input : program.inputs) {
    const auto* name = std::get_if<TensorName>(&input.argument.value);
    if (input.kind != ProgramInput::Kind::parameter || name == nullptr) continue;
    const auto tensor = program.tensors.find(name->name);
    if (tensor != program.tensors.end() && scalar_type_of(tensor->second.type) == at::kDouble) return false;
    has_parameters = true;
  }
  return has_parameters;
}

// Any floating-point dtype is accepted for another, because precisions convert inputs and weights alike. But
// a program that takes float64 with weights of fewer bits needs the digits.
bool is_type_for(const at::Tensor& tensor, ProgramType wanted, bool weights_are_narrow) {
  const at::ScalarType type = scalar_type_of(wanted);
  if (tensor.scalar_type() == type) return true;
  if (type == at::kDouble && weights_are_narrow) return false;
  return at::isFloatingType(type) && tensor.is_floating_point();
}

// Whether the data module of arrays makes float32 of it, unless it is told otherwise.
bool becomes_float(ProgramType type) {
  return type == ProgramType::boolean || type == ProgramType::uint8 || type == ProgramType::int8 ||
         type == ProgramType::int16;
}

}  // namespace

ProgramInputs::ProgramInputs(const ExportedProgram& program)
    : ranges_(program.ranges), has_narrow_weights_(has_narrow_weights(program)) {
  for (const ProgramInput& input : program.inputs) {
    if (std::holds_alternative<NumberName>(input.argument.value))
      throw CheckpointError({.place = "the program's inputs",
                             .found = "one of them is a dynamic number",
                             .wanted = "tensors",
                             .remedy = "export a forward pass that takes only tensors"});
    const auto* name = std::get_if<TensorName>(&input.argument.value);
    if (input.kind != ProgramInput::Kind::user) continue;
    if (name == nullptr)
      continue;  // a Python number that was fixed in the export; the program does not take it
    const auto tensor = program.tensors.find(name->name);
    if (tensor == program.tensors.end())
      throw CheckpointError({.place = "the program's inputs",
                             .found = "the program does not describe the tensor " + json_string(name->name)});
    inputs_.push_back({name->name, tensor->second});
  }
}

void ProgramInputs::check(std::span<const at::Tensor> inputs) const {
  std::map<std::string, std::int64_t> symbols;
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const ProgramTensor& wanted = inputs_[i].tensor;
    const at::Tensor& given = inputs[i];
    const auto refuse = [&](const std::string& remedy) {
      throw DataError({.place = "input " + json_string(inputs_[i].name) + " of the exported program",
                       .found = "it is " + text_of_input(given),
                       .wanted = shape_text_of(wanted) + ", as it was exported",
                       .remedy = remedy});
    };
    if (!is_type_for(given, wanted.type, has_narrow_weights_))
      refuse(
          given.is_floating_point() && becomes_float(wanted.type)
              ? "convert it to that dtype; if an array of a file has it, set data.keep_type = true (arrays)"
              : "convert it to the dtype that the program was exported with");
    if (static_cast<std::size_t>(given.dim()) != wanted.sizes.size()) refuse("");
    for (std::size_t d = 0; d < wanted.sizes.size(); ++d) {
      const std::int64_t size = given.size(static_cast<std::int64_t>(d));
      if (wanted.sizes[d].expression.empty()) {
        if (size != wanted.sizes[d].number)
          refuse(d == 0 ? "set batch_size = " + std::to_string(wanted.sizes[d].number) +
                              " and drop_last = true, or export the model with a dynamic batch size "
                              "(dynamic_shapes)"
                        : "");
        continue;
      }
      const auto [symbol, factor] = symbol_of(wanted.sizes[d]);
      if (symbol.empty()) continue;
      if (size % factor != 0) refuse("it was exported for multiples of " + std::to_string(factor));
      if (symbols.emplace(symbol, size / factor).first->second != size / factor)
        refuse("sizes with the same symbol must be equal");
      const auto range = ranges_.find(symbol);
      if (range == ranges_.end()) continue;
      const auto& [least, largest] = range->second;
      if ((least && size / factor < *least) || (largest && size / factor > *largest))
        refuse("it was exported for sizes from " + (least ? std::to_string(*least * factor) : "0") + " to " +
               (largest ? std::to_string(*largest * factor) : "any") +
               ": export it with another range (Dim(min=1)), or use another " +
               (d == 0 ? "batch size" : "size"));
    }
  }
}

std::optional<BatchSizes> batch_sizes_of(const ExportedProgram& program) {
  for (const ProgramInput& input : program.inputs) {
    const auto* name = std::get_if<TensorName>(&input.argument.value);
    if (input.kind != ProgramInput::Kind::user || name == nullptr) continue;
    const std::vector<ProgramSize>& sizes = program.tensors.at(name->name).sizes;
    const SymbolMultiple size = sizes.empty() ? SymbolMultiple{} : symbol_of(sizes[0]);
    if (size.symbol.empty()) return std::nullopt;
    BatchSizes found{.min = size.factor, .max = {}, .multiple_of = size.factor};
    if (const auto range = program.ranges.find(size.symbol); range != program.ranges.end()) {
      const auto& [least, largest] = range->second;
      found.min = std::max<std::int64_t>(least.value_or(1), 1) * size.factor;
      if (largest) found.max = *largest * size.factor;
    }
    return found;
  }
  return std::nullopt;
}

}  // namespace kindling
