#include "programs/recorded_sizes.h"

#include <algorithm>
#include <map>

namespace kindling {

RecordedSizes::RecordedSizes(const std::vector<Values>& values) : values_(values) {
  add_exponents({}, 0);
  const auto combination = [&](const std::vector<int>& numbers) {
    Sizes sizes;
    for (std::size_t i = 0; i < values.size(); ++i)
      sizes.push_back(values[i][static_cast<std::size_t>(numbers[i])]);
    return sizes;
  };
  for (const Exponents& exponents : exponents_) all_.push_back(combination(exponents));
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::vector<int> numbers(values.size());
    numbers[i] = 3;
    all_.push_back(combination(numbers));
  }
  all_.push_back(combination(std::vector<int>(values.size(), 4)));
}

void RecordedSizes::add_exponents(Exponents begin, int degree) {
  if (begin.size() == values_.size()) return exponents_.push_back(std::move(begin));
  for (int exponent = 0; exponent <= kMaxExponent && degree + exponent <= kMaxDegree; ++exponent) {
    Exponents next = begin;
    next.push_back(exponent);
    add_exponents(std::move(next), degree + exponent);
  }
}

std::optional<SizePolynomial> RecordedSizes::polynomial_through(
    const std::vector<std::int64_t>& numbers) const {
  Terms terms;
  for (std::size_t i = 0; i < exponents_.size(); ++i) terms[exponents_[i]] = numbers[i];
  if (!divide_differences(terms)) return std::nullopt;
  multiply_out(terms);
  std::erase_if(terms, [](const auto& term) { return term.second == 0; });
  SizePolynomial polynomial{std::move(terms)};
  for (std::size_t i = 0; i < all_.size(); ++i)
    if (polynomial.at(all_[i]) != numbers[i]) return std::nullopt;
  return polynomial;
}

// Newton's, size by size: those of a polynomial with whole factors are whole.
bool RecordedSizes::divide_differences(Terms& terms) const {
  for (std::size_t size = 0; size < values_.size(); ++size)
    for (int order = 1; order <= kMaxExponent; ++order)
      for (auto term = terms.rbegin(); term != terms.rend(); ++term) {  // the larger exponents first
        const int exponent = term->first[size];
        if (exponent < order) continue;
        Exponents below = term->first;
        --below[size];
        const std::int64_t rise = term->second - terms.at(below);
        const std::int64_t step = value(size, exponent) - value(size, exponent - order);
        if (rise % step != 0) return false;
        term->second = rise / step;
      }
  return true;
}

// From c0 + (x - x0)(c1 + (x - x1) c2) to powers of x, size by size, the inner brackets first.
void RecordedSizes::multiply_out(Terms& terms) const {
  for (std::size_t size = 0; size < values_.size(); ++size)
    for (int bracket = kMaxExponent - 1; bracket >= 0; --bracket)
      for (auto& [exponents, factor] : terms) {  // the smaller exponents first
        Exponents above = exponents;
        ++above[size];
        if (const auto next = terms.find(above); exponents[size] >= bracket && next != terms.end())
          factor -= value(size, bracket) * next->second;
      }
}

}  // namespace kindling
