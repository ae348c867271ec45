#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace kindling {

// A number that goes with dynamic sizes: their products, each so many times, added up.
struct SizePolynomial {
  using Exponents = std::vector<int>;         // of the sizes, in their order; all 0: of the constant
  std::map<Exponents, std::int64_t> terms{};  // without those that are 0

  std::int64_t at(const std::vector<std::int64_t>& sizes) const;
  // The number that it is with any sizes.
  std::optional<std::int64_t> constant() const;
  bool operator<(const SizePolynomial& other) const { return terms < other.terms; }
  bool operator==(const SizePolynomial& other) const { return terms == other.terms; }
};

// "s0" is that of the first dynamic size.
std::string size_symbol(std::size_t number);
// As Python's SymPy reads it.
std::string expression_of(const SizePolynomial& polynomial);

}  // namespace kindling
