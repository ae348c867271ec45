#include "interop/run/program_call.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/enum_tag.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <torch/version.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "interop/run/grouped_product.h"
#include "interop/run/listed_operators.h"
#include "kindling/base/error.h"
#include "kindling/base/json.h"
#include "kindling/base/suggest.h"
#include "kindling/base/text.h"

namespace kindling {
namespace {

using Arguments = std::span<const c10::IValue>;

[[noreturn]] void refuse_numbers(const char* found) {
  throw Error({.place = "a program's computation of sizes", .found = found});
}

const c10::IValue& argument(Arguments given, std::size_t number) {
  if (number >= given.size()) refuse_numbers("an argument is missing");
  return given[number];
}

bool is_integral(const c10::IValue& value) { return value.isInt() || value.isBool(); }

std::int64_t integer(Arguments given, std::size_t number) {
  const c10::IValue& value = argument(given, number);
  if (!is_integral(value)) refuse_numbers("a number is not an integer");
  return value.isBool() ? static_cast<std::int64_t>(value.toBool()) : value.toInt();
}

double real(Arguments given, std::size_t number) {
  const c10::IValue& value = argument(given, number);
  return value.isDouble() ? value.toDouble() : static_cast<double>(integer(given, number));
}

const at::Tensor& tensor(Arguments given) {
  if (!argument(given, 0).isTensor()) refuse_numbers("a tensor is missing");
  return argument(given, 0).toTensor();
}

// Integers if both are integers, else floats. Throws if a sum or product exceeds 64 bits.
template <class OnIntegers, class OnFloats>
c10::IValue apply_binary(Arguments given, OnIntegers on_integers, OnFloats on_floats) {
  if (!is_integral(argument(given, 0)) || !is_integral(argument(given, 1)))
    return on_floats(real(given, 0), real(given, 1));
  return on_integers(integer(given, 0), integer(given, 1));
}

template <class Builtin>
std::int64_t without_overflow(Builtin builtin, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (builtin(a, b, &result)) refuse_numbers("an integer exceeds 64 bits");
  return result;
}

// Rounds towards minus infinity, as in Python.
std::int64_t floor_divided(std::int64_t a, std::int64_t b) {
  if (b == 0) refuse_numbers("an integer is divided by 0");
  if (a == std::numeric_limits<std::int64_t>::min() && b == -1) refuse_numbers("an integer exceeds 64 bits");
  return a / b - static_cast<std::int64_t>(a % b != 0 && (a < 0) != (b < 0));
}

c10::IValue add(Arguments given) {
  return apply_binary(
      given,
      [](std::int64_t a, std::int64_t b) -> c10::IValue {
        return without_overflow([](auto x, auto y, auto* z) { return __builtin_add_overflow(x, y, z); }, a,
                                b);
      },
      [](double a, double b) -> c10::IValue { return a + b; });
}

c10::IValue subtract(Arguments given) {
  return apply_binary(
      given,
      [](std::int64_t a, std::int64_t b) -> c10::IValue {
        return without_overflow([](auto x, auto y, auto* z) { return __builtin_sub_overflow(x, y, z); }, a,
                                b);
      },
      [](double a, double b) -> c10::IValue { return a - b; });
}

c10::IValue multiply(Arguments given) {
  return apply_binary(
      given,
      [](std::int64_t a, std::int64_t b) -> c10::IValue {
        return without_overflow([](auto x, auto y, auto* z) { return __builtin_mul_overflow(x, y, z); }, a,
                                b);
      },
      [](double a, double b) -> c10::IValue { return a * b; });
}

c10::IValue floor_divide(Arguments given) {
  return apply_binary(
      given, [](std::int64_t a, std::int64_t b) -> c10::IValue { return floor_divided(a, b); },
      [](double a, double b) -> c10::IValue { return std::floor(a / b); });
}

c10::IValue modulo(Arguments given) {
  return apply_binary(
      given, [](std::int64_t a, std::int64_t b) -> c10::IValue { return a - floor_divided(a, b) * b; },
      [](double a, double b) -> c10::IValue { return a - std::floor(a / b) * b; });
}

// Integers to a nonnegative power.
c10::IValue power(Arguments given) {
  if (!is_integral(argument(given, 0)) || !is_integral(argument(given, 1)) || integer(given, 1) < 0)
    return std::pow(real(given, 0), real(given, 1));
  std::int64_t result = 1;
  const std::int64_t base = integer(given, 0), exponent = integer(given, 1);
  if (exponent > 63 && base != 0 && base != 1 && base != -1) refuse_numbers("an integer exceeds 64 bits");
  for (std::int64_t i = 0; i < (exponent > 63 ? exponent % 2 + 2 : exponent); ++i)
    result = without_overflow([](auto x, auto y, auto* z) { return __builtin_mul_overflow(x, y, z); }, result,
                              base);
  return result;
}

template <template <class> class Compare>
c10::IValue compare(Arguments given) {
  return apply_binary(
      given, [](std::int64_t a, std::int64_t b) -> c10::IValue { return Compare<std::int64_t>()(a, b); },
      [](double a, double b) -> c10::IValue { return Compare<double>()(a, b); });
}

c10::IValue rounded(double value) {
  constexpr double kLimit = 9.2e18;  // within 64 bits
  if (!(std::abs(value) < kLimit)) refuse_numbers("a number exceeds 64 bits");
  return static_cast<std::int64_t>(value);
}

bool is_true(Arguments given, std::size_t number) { return real(given, number) != 0; }

// The size of a dimension, counted from the end if negative.
std::int64_t number_of_dimension(Arguments given, at::IntArrayRef numbers) {
  const std::int64_t dim = integer(given, 1), rank = static_cast<std::int64_t>(numbers.size());
  if (dim < -rank || dim >= rank)
    refuse_numbers("a requested size belongs to a dimension that the tensor does not have");
  return numbers[static_cast<std::size_t>(dim < 0 ? dim + rank : dim)];
}

const std::map<std::string_view, NumberFunction>& number_functions() {
  static const std::map<std::string_view, NumberFunction> functions{
      {"_operator.add", &add},
      {"_operator.sub", &subtract},
      {"_operator.mul", &multiply},
      {"_operator.floordiv", &floor_divide},
      {"_operator.mod", &modulo},
      {"_operator.pow", &power},
      {"_operator.truediv", [](Arguments g) -> c10::IValue { return real(g, 0) / real(g, 1); }},
      {"_operator.neg",
       [](Arguments g) -> c10::IValue {
         const c10::IValue operands[] = {std::int64_t{0}, argument(g, 0)};
         return subtract(operands);
       }},
      {"_operator.eq", &compare<std::equal_to>},
      {"_operator.ne", &compare<std::not_equal_to>},
      {"_operator.lt", &compare<std::less>},
      {"_operator.le", &compare<std::less_equal>},
      {"_operator.gt", &compare<std::greater>},
      {"_operator.ge", &compare<std::greater_equal>},
      {"_operator.and_", [](Arguments g) -> c10::IValue { return is_true(g, 0) && is_true(g, 1); }},
      {"_operator.or_", [](Arguments g) -> c10::IValue { return is_true(g, 0) || is_true(g, 1); }},
      {"torch.sym_not", [](Arguments g) -> c10::IValue { return !is_true(g, 0); }},
      {"torch.sym_max",
       [](Arguments g) -> c10::IValue {
         return compare<std::less>(g).toBool() ? argument(g, 1) : argument(g, 0);
       }},
      {"torch.sym_min",
       [](Arguments g) -> c10::IValue {
         return compare<std::less>(g).toBool() ? argument(g, 0) : argument(g, 1);
       }},
      {"torch.sym_ite",
       [](Arguments g) -> c10::IValue { return is_true(g, 0) ? argument(g, 1) : argument(g, 2); }},
      {"torch.sym_float", [](Arguments g) -> c10::IValue { return real(g, 0); }},
      {"torch.sym_int", [](Arguments g) -> c10::IValue { return rounded(real(g, 0)); }},
      {"torch._sym_sqrt", [](Arguments g) -> c10::IValue { return std::sqrt(real(g, 0)); }},
      {"math.sqrt", [](Arguments g) -> c10::IValue { return std::sqrt(real(g, 0)); }},
      {"math.floor", [](Arguments g) -> c10::IValue { return rounded(std::floor(real(g, 0))); }},
      {"math.ceil", [](Arguments g) -> c10::IValue { return rounded(std::ceil(real(g, 0))); }},
      {"math.trunc", [](Arguments g) -> c10::IValue { return rounded(std::trunc(real(g, 0))); }},
      {"torch.ops.aten.sym_size.int",
       [](Arguments g) -> c10::IValue { return number_of_dimension(g, tensor(g).sizes()); }},
      {"torch.ops.aten.sym_stride.int",
       [](Arguments g) -> c10::IValue { return number_of_dimension(g, tensor(g).strides()); }},
      {"torch.ops.aten.sym_numel.default", [](Arguments g) -> c10::IValue { return tensor(g).numel(); }},
      {"torch.ops.aten.sym_storage_offset.default",
       [](Arguments g) -> c10::IValue { return tensor(g).storage_offset(); }},
      {"torch.ops.aten._assert_scalar.default",
       [](Arguments g) -> c10::IValue {
         if (!is_true(g, 0))
           refuse_numbers("an assertion of the exported program about its sizes does not hold");
         return {};
       }},
  };
  return functions;
}

// Returns the function of a name such as "_operator.mul", "math.floor", "torch.sym_max" or
// "torch.ops.aten.sym_size.int"; nullptr for unknown names. The function throws Error for invalid arguments.
NumberFunction number_function(std::string_view target) {
  const auto found = number_functions().find(target);
  return found == number_functions().end() ? nullptr : found->second;
}

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
    refuse_call(place, "the program was decomposed in training mode and cannot be differentiated",
                "a program as torch.export.export creates it", "omit run_decompositions()");
  if (packet == "item" || packet == "_local_scalar_dense")
    refuse_call(place, "the program depends on the values of its tensors",
                "a forward pass whose sizes depend only on sizes");
  if (!node.target.starts_with(kAtenPrefix))
    refuse_call(place, "it is not an ATen operator", "ATen operators and arithmetic on sizes",
                "export a model without custom operators");
  const std::vector<std::string> listed(listed_operators().begin(), listed_operators().end());
  const std::string close = nearest(packet, listed);
  refuse_call(place, "programs from files may not call this operator",
              close.empty() ? "" : "an allowed operator, such as " + close);
}

// True for assertions about tensors, which LibTorch would check again and which fail on another device.
bool is_assertion_about_tensors(const std::string& target) {
  static const std::set<std::string> targets{"torch.ops.aten._assert_tensor_metadata.default",
                                             "torch.ops.aten.sym_constrain_range_for_size.default",
                                             "torch.ops.aten.sym_constrain_range.default"};
  return targets.contains(target);
}

// Before LibTorch 2.14 (pytorch#186414), native_group_norm and its backward pass read the weight as if it
// were contiguous: values of other memory, or the end of the process. Autograd keeps these arguments for the
// backward pass.
constexpr bool kGroupNormIgnoresStrides = TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 14;

// Makes the input, weight and bias contiguous.
void copy_group_norm_arguments(torch::jit::Stack& stack) {
  for (std::size_t i = 0; i < 3; ++i)
    if (stack[i].isTensor() && stack[i].toTensor().defined()) stack[i] = stack[i].toTensor().contiguous();
}

// Disables autocast during its lifetime if the device's type is one of the given ones.
class AutocastOff {
 public:
  AutocastOff(const std::vector<std::string>& types, at::Device device)
      : type_(device.type()),
        is_off_(std::ranges::find(types, c10::DeviceTypeName(type_, /*lower_case=*/true)) != types.end() &&
                at::autocast::is_autocast_enabled(type_)) {
    if (is_off_) at::autocast::set_autocast_enabled(type_, false);
  }
  ~AutocastOff() {
    if (is_off_) at::autocast::set_autocast_enabled(type_, true);
  }
  AutocastOff(const AutocastOff&) = delete;
  AutocastOff& operator=(const AutocastOff&) = delete;

 private:
  at::DeviceType type_;
  bool is_off_;
};

// Operators that may return an argument or a view of it, although their schema does not say so.
bool returns_undeclared_view(std::string_view name) {
  static const std::set<std::string_view> names{
      "alpha_dropout", "atleast_1d",      "atleast_2d", "atleast_3d", "broadcast_tensors",    "dropout",
      "einsum",        "feature_dropout", "meshgrid",   "type_as",    "feature_alpha_dropout"};
  return names.contains(name);
}

}  // namespace

ProgramCall::ProgramCall(const ProgramNode& node, ProgramNames& names)
    : place_((node.layer.empty() ? "" : "layer " + one_line(node.layer) + ", ") + one_line(node.target)),
      with_gradients_(node.with_gradients),
      autocast_off_(node.autocast_off),
      is_grouped_product_(is_grouped_product(node)) {
  if (is_assertion_about_tensors(node.target)) {
    function_ = [](std::span<const c10::IValue>) { return c10::IValue(); };
    return;
  }
  try {
    const ProgramNode call = is_grouped_product_ ? as_aten_grouped_product(node) : node;
    if (is_grouped_product_) autocast_off_ = {"cpu", "cuda"};  // as in Python
    resolve(call);
    take_arguments(call, names);
    find_mode();
    name_results(call, names);
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

// Dropout, batch norm and recurrent layers have an argument for training mode.
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
    // Without running statistics a batch norm is the same in both modes.
    const bool has_no_statistics = name_ == "batch_norm" && !arguments_[3].value();
    if ((argument == "train" || argument == "training") && constant->isBool() && !has_no_statistics)
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
                std::to_string(num_results) + ", as in the schema of the operator");
  for (std::size_t i = 0; i < num_results; ++i) {
    const ProgramArgument& output = node.outputs[i];
    const bool returns_list =
        operator_ && operator_->schema().returns()[i].type()->kind() == c10::TypeKind::ListType;
    auto& numbers = results_.emplace_back();
    is_list_.push_back(returns_list);
    if (const auto* name = std::get_if<TensorName>(&output.value); name && operator_ && !returns_list)
      numbers.push_back(names.add(name->name, ProgramNames::Kind::tensor));
    else if (const auto* number = std::get_if<NumberName>(&output.value); number && !operator_)
      numbers.push_back(names.add(number->name, ProgramNames::kind_of(number->kind)));
    else if (const auto* list = std::get_if<ProgramList>(&output.value);
             list && returns_list && list->element == ProgramList::Element::tensors)
      for (const ProgramArgument& item : list->items)
        numbers.push_back(names.add(std::get<TensorName>(item.value).name, ProgramNames::Kind::tensor));
    else if (!std::holds_alternative<std::monostate>(output.value))
      refuse_call(place_, "the type of a result differs from the schema of the operator");
  }
}

bool ProgramCall::draws_in_evaluation() const noexcept {
  if (!operator_ || has_mode_ || !operator_->hasTag(at::Tag::nondeterministic_seeded)) return false;
  const auto& schema = operator_->schema().arguments();
  return std::ranges::none_of(schema, [](const c10::Argument& each) { return each.name() == "dropout_p"; });
}

std::vector<std::size_t> ProgramCall::written_values() const {
  std::vector<std::size_t> written;
  if (!operator_ || is_skipped_in_evaluation_) return written;
  const auto& schema = operator_->schema().arguments();
  for (std::size_t i = 0; i < schema.size(); ++i) {
    if (schema[i].alias_info() == nullptr || !schema[i].alias_info()->isWrite()) continue;
    const std::vector<std::size_t> values = arguments_[i].values();
    written.insert(written.end(), values.begin(), values.end());
  }
  return written;
}

std::vector<std::size_t> ProgramCall::viewed_values() const {
  std::vector<std::size_t> viewed;
  if (!operator_) return viewed;
  const bool is_undeclared = returns_undeclared_view(name_);
  const auto& schema = operator_->schema().arguments();
  for (std::size_t i = 0; i < schema.size(); ++i) {
    if (schema[i].alias_info() == nullptr && !is_undeclared) continue;
    const std::vector<std::size_t> values = arguments_[i].values();
    viewed.insert(viewed.end(), values.begin(), values.end());
  }
  return viewed;
}

std::vector<std::size_t> ProgramCall::results() const {
  std::vector<std::size_t> all;
  for (const std::vector<std::size_t>& result : results_) all.insert(all.end(), result.begin(), result.end());
  return all;
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
  std::optional<AutocastOff> autocast;
  if (!autocast_off_.empty()) autocast.emplace(autocast_off_, state.device);
  if (kGroupNormIgnoresStrides && name_ == "native_group_norm") copy_group_norm_arguments(stack);
  is_grouped_product_ ? run_grouped_product(stack) : operator_->callBoxed(stack);
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
                   .found = "the operator returns " + std::to_string(list.size()) + " tensors",
                   .wanted = std::to_string(numbers.size()) + ", as at the time of the export"});
    for (std::size_t k = 0; k < list.size(); ++k) state.values[numbers[k]] = list[k];
  }
}

}  // namespace kindling
