#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace kindling {

// A polynomial in the dynamic sizes, with integer coefficients.
struct SizePolynomial {
  using Exponents = std::vector<int>;         // of the sizes, in their order; all 0: the constant term
  std::map<Exponents, std::int64_t> terms{};  // without coefficients of 0

  std::int64_t at(const std::vector<std::int64_t>& sizes) const;
  // Returns the value of a constant polynomial.
  std::optional<std::int64_t> constant() const;
  bool operator<(const SizePolynomial& other) const { return terms < other.terms; }
  bool operator==(const SizePolynomial& other) const { return terms == other.terms; }
};

// Returns the symbol of a dynamic size; "s0" is the first.
std::string size_symbol(std::size_t number);
// Returns the polynomial as an expression for Python's SymPy.
std::string expression_of(const SizePolynomial& polynomial);

}  // namespace kindling
