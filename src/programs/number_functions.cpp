#include "programs/number_functions.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>

#include "kindling/base/error.h"

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

// Integers with integers, else floats. Sums and products that leave 64 bits are refused.
template <class OfIntegers, class OfFloats>
c10::IValue of_two(Arguments given, OfIntegers of_integers, OfFloats of_floats) {
  if (!is_integral(argument(given, 0)) || !is_integral(argument(given, 1)))
    return of_floats(real(given, 0), real(given, 1));
  return of_integers(integer(given, 0), integer(given, 1));
}

template <class Builtin>
std::int64_t without_overflow(Builtin builtin, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (builtin(a, b, &result)) refuse_numbers("an integer leaves 64 bits");
  return result;
}

// Towards minus infinity, as Python divides.
std::int64_t floor_divided(std::int64_t a, std::int64_t b) {
  if (b == 0) refuse_numbers("an integer is divided by 0");
  if (a == std::numeric_limits<std::int64_t>::min() && b == -1) refuse_numbers("an integer leaves 64 bits");
  return a / b - static_cast<std::int64_t>(a % b != 0 && (a < 0) != (b < 0));
}

c10::IValue add(Arguments given) {
  return of_two(
      given,
      [](std::int64_t a, std::int64_t b) -> c10::IValue {
        return without_overflow([](auto x, auto y, auto* z) { return __builtin_add_overflow(x, y, z); }, a,
                                b);
      },
      [](double a, double b) -> c10::IValue { return a + b; });
}

c10::IValue subtract(Arguments given) {
  return of_two(
      given,
      [](std::int64_t a, std::int64_t b) -> c10::IValue {
        return without_overflow([](auto x, auto y, auto* z) { return __builtin_sub_overflow(x, y, z); }, a,
                                b);
      },
      [](double a, double b) -> c10::IValue { return a - b; });
}

c10::IValue multiply(Arguments given) {
  return of_two(
      given,
      [](std::int64_t a, std::int64_t b) -> c10::IValue {
        return without_overflow([](auto x, auto y, auto* z) { return __builtin_mul_overflow(x, y, z); }, a,
                                b);
      },
      [](double a, double b) -> c10::IValue { return a * b; });
}

c10::IValue floor_divide(Arguments given) {
  return of_two(
      given, [](std::int64_t a, std::int64_t b) -> c10::IValue { return floor_divided(a, b); },
      [](double a, double b) -> c10::IValue { return std::floor(a / b); });
}

c10::IValue modulo(Arguments given) {
  return of_two(
      given, [](std::int64_t a, std::int64_t b) -> c10::IValue { return a - floor_divided(a, b) * b; },
      [](double a, double b) -> c10::IValue { return a - std::floor(a / b) * b; });
}

// Integers to a power that is not negative.
c10::IValue power(Arguments given) {
  if (!is_integral(argument(given, 0)) || !is_integral(argument(given, 1)) || integer(given, 1) < 0)
    return std::pow(real(given, 0), real(given, 1));
  std::int64_t result = 1;
  const std::int64_t base = integer(given, 0), exponent = integer(given, 1);
  if (exponent > 63 && base != 0 && base != 1 && base != -1) refuse_numbers("an integer leaves 64 bits");
  for (std::int64_t i = 0; i < (exponent > 63 ? exponent % 2 + 2 : exponent); ++i)
    result = without_overflow([](auto x, auto y, auto* z) { return __builtin_mul_overflow(x, y, z); }, result,
                              base);
  return result;
}

template <template <class> class Compare>
c10::IValue compare(Arguments given) {
  return of_two(
      given, [](std::int64_t a, std::int64_t b) -> c10::IValue { return Compare<std::int64_t>()(a, b); },
      [](double a, double b) -> c10::IValue { return Compare<double>()(a, b); });
}

c10::IValue rounded(double value) {
  constexpr double kLimit = 9.2e18;  // within 64 bits
  if (!(std::abs(value) < kLimit)) refuse_numbers("a number leaves 64 bits");
  return static_cast<std::int64_t>(value);
}

bool is_true(Arguments given, std::size_t number) { return real(given, number) != 0; }

// A size of a dimension, counted from the end when negative.
std::int64_t of_dimension(Arguments given, at::IntArrayRef numbers) {
  const std::int64_t dim = integer(given, 1), rank = static_cast<std::int64_t>(numbers.size());
  if (dim < -rank || dim >= rank) refuse_numbers("a tensor has fewer dimensions than its size is asked for");
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
         const c10::IValue zero_and_it[] = {std::int64_t{0}, argument(g, 0)};
         return subtract(zero_and_it);
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
       [](Arguments g) -> c10::IValue { return of_dimension(g, tensor(g).sizes()); }},
      {"torch.ops.aten.sym_stride.int",
       [](Arguments g) -> c10::IValue { return of_dimension(g, tensor(g).strides()); }},
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

}  // namespace

NumberFunction number_function(std::string_view target) {
  const auto found = number_functions().find(target);
  return found == number_functions().end() ? nullptr : found->second;
}

}  // namespace kindling
