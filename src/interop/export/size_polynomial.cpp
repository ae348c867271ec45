#include "interop/export/size_polynomial.h"

#include <algorithm>

namespace kindling {
namespace {

// "Mul(a, b)" of two or more.
std::string joined(const char* function, const std::vector<std::string>& parts) {
  if (parts.size() == 1) return parts[0];
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return function + ("(" + text + ")");
}

std::string term_expression(const SizePolynomial::Exponents& exponents, std::int64_t factor) {
  std::vector<std::string> factors;
  for (std::size_t i = 0; i < exponents.size(); ++i) {
    const std::string symbol = "Symbol('" + size_symbol(i) + "', positive=True, integer=True)";
    if (exponents[i] == 1) factors.push_back(symbol);
    if (exponents[i] > 1)
      factors.push_back("Pow(" + symbol + ", Integer(" + std::to_string(exponents[i]) + "))");
  }
  if (factor != 1 || factors.empty())
    factors.insert(factors.begin(), "Integer(" + std::to_string(factor) + ")");
  return joined("Mul", factors);
}

}  // namespace

std::int64_t SizePolynomial::at(const std::vector<std::int64_t>& sizes) const {
  std::int64_t sum = 0;
  for (const auto& [exponents, factor] : terms) {
    std::int64_t product = factor;
    for (std::size_t i = 0; i < exponents.size(); ++i)
      for (int times = 0; times < exponents[i]; ++times) product *= sizes[i];
    sum += product;
  }
  return sum;
}

std::optional<std::int64_t> SizePolynomial::constant() const {
  if (terms.empty()) return 0;
  const auto& [exponents, factor] = *terms.begin();
  const bool is_constant =
      terms.size() == 1 && std::ranges::all_of(exponents, [](int exponent) { return exponent == 0; });
  return is_constant ? std::optional(factor) : std::nullopt;
}

std::string size_symbol(std::size_t number) { return "s" + std::to_string(number); }

std::string expression_of(const SizePolynomial& polynomial) {
  std::vector<std::string> terms;
  for (const auto& [exponents, factor] : polynomial.terms)
    terms.push_back(term_expression(exponents, factor));
  return terms.empty() ? "Integer(0)" : joined("Add", terms);
}

}  // namespace kindling
