#include "interop/export/dynamic_sizes.h"

#include <ATen/ops/arange.h>

#include <algorithm>
#include <array>
#include <map>

#include "kindling/base/error.h"
#include "kindling/base/json.h"

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

// Computes Newton's coefficients, size by size. They are integers for a polynomial with integer coefficients.
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

// Expands c0 + (x - x0)(c1 + (x - x1) c2) into powers of x, size by size, the inner brackets first.
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

namespace {

constexpr std::size_t kMostSizes = 4;
constexpr std::int64_t kMostRows = 128;  // larger batches may not fit into the memory
// Offsets from the smallest value of a size: five recorded ones and one that is only checked. Their
// remainders modulo 2 to 8 differ enough that rounded quotients (halves, thirds) cannot be polynomials in
// them. The further offsets replace those that exceed a largest size.
constexpr std::array<std::int64_t, 10> kSteps{2, 4, 9, 7, 8, 0, 1, 3, 5, 6};
constexpr std::size_t kRecordedValues = std::tuple_size_v<RecordedSizes::Values>;
// The shift of each size's first value, so that no two sizes are equal.
constexpr std::array<std::int64_t, kMostSizes> kShifts{0, 1, 11, 12};

[[noreturn]] void refuse_dynamic(const std::string& name, const std::string& found, const std::string& wanted,
                                 const std::string& remedy = "") {
  throw ConfigError(
      {.place = "dynamic size " + json_string(name), .found = found, .wanted = wanted, .remedy = remedy});
}

std::string place_text(const DynamicSize::Place& at) {
  return "dimension " + std::to_string(at.dim) + " of tensor " + std::to_string(at.tensor);
}

bool is_same_place(const DynamicSize::Place& one, const DynamicSize::Place& other) {
  return one.tensor == other.tensor && one.dim == other.dim;
}

std::int64_t size_at(const Batch& example, const DynamicSize::Place& at) {
  return example.tensors()[at.tensor].size(at.dim);
}

// Returns the bounds in multiples of multiple_of; the default minimum is 1.
std::pair<std::int64_t, std::optional<std::int64_t>> range_of(const DynamicSize& size) {
  const std::int64_t least = size.min.value_or(1), multiple = size.multiple_of;
  return {(least + multiple - 1) / multiple, size.max ? std::optional(*size.max / multiple) : std::nullopt};
}

// Returns the size with nonnegative dimensions.
DynamicSize with_places_in(const Batch& example, DynamicSize size) {
  for (DynamicSize::Place& at : size.places) {
    if (at.tensor >= example.tensors().size())
      refuse_dynamic(size.name, "the example has no tensor " + std::to_string(at.tensor),
                     "one of its " + std::to_string(example.tensors().size()) + ", counted from 0");
    const std::int64_t rank = example.tensors()[at.tensor].dim();
    if (at.dim < -rank || at.dim >= rank)
      refuse_dynamic(size.name, "there is no " + place_text(at),
                     "one of its " + std::to_string(rank) + ", counted from 0");
    if (at.dim < 0) at.dim += rank;
  }
  return size;
}

bool is_place_of_any(const std::vector<DynamicSize>& sizes, const DynamicSize::Place& at) {
  return std::ranges::any_of(sizes, [&](const DynamicSize& size) {
    return std::ranges::any_of(size.places, [&](const auto& other) { return is_same_place(at, other); });
  });
}

std::vector<DynamicSize> named_sizes(const Batch& example, const ExportOptions& options) {
  std::vector<DynamicSize> named;
  for (const DynamicSize& size : options.dynamic_sizes) named.push_back(with_places_in(example, size));
  if (named.size() + (options.dynamic_batch ? 1 : 0) > kMostSizes)
    throw ConfigError(
        {.place = "dynamic sizes",
         .found = "there are " + std::to_string(named.size()) + " in addition to the batch size",
         .wanted = "at most " + std::to_string(kMostSizes) + ", including the batch size"});
  return named;
}

}  // namespace

DynamicSizes::DynamicSizes(const Batch& example, const ExportOptions& options)
    : has_batch_(options.dynamic_batch), samples_(example.num_samples()) {
  if (samples_ == 0)
    throw Error({.place = "export of a model", .found = "the example is empty", .wanted = "a batch"});
  const std::vector<DynamicSize> named = named_sizes(example, options);
  for (std::size_t i = 0; i < example.tensors().size(); ++i) {
    const at::Tensor& tensor = example.tensors()[i];
    const bool has_samples = tensor.dim() > 0 && tensor.size(0) == samples_;
    if (has_samples && ((i == 0 && has_batch_) || !is_place_of_any(named, {i, 0})))
      sample_places_.push_back({i, 0});
  }
  if (has_batch_) add({.name = "batch", .places = sample_places_});
  for (const DynamicSize& size : named) {
    require_possible(example, size);
    add(size);
  }
  std::vector<RecordedSizes::Values> values;
  for (const Size& size : sizes_) values.push_back(size.recorded);
  recorded_.emplace(values);
}

void DynamicSizes::require_possible(const Batch& example, const DynamicSize& size) const {
  if (size.name.empty() || size.places.empty())
    refuse_dynamic(size.name, size.name.empty() ? "it has no name" : "it has no places",
                   R"({.name = "sequence", .places = {{0, 1}}})");
  for (const Size& other : sizes_) {
    if (other.name == size.name)
      refuse_dynamic(size.name, "two dynamic sizes have this name", "one dynamic size with all places");
    for (const DynamicSize::Place& at : size.places)
      if (std::ranges::any_of(other.places, [&](const auto& taken) { return is_same_place(at, taken); }))
        refuse_dynamic(size.name, place_text(at) + " already belongs to " + json_string(other.name),
                       "another dimension",
                       other.name == "batch" ? "set dynamic_batch = false to make it part of this size" : "");
  }
  const std::int64_t given = size_at(example, size.places[0]);
  for (const DynamicSize::Place& at : size.places)
    if (size_at(example, at) != given)
      refuse_dynamic(size.name,
                     place_text(size.places[0]) + " is " + std::to_string(given) + ", " + place_text(at) +
                         " is " + std::to_string(size_at(example, at)),
                     "an example in which they are equal");
  if (size.multiple_of < 1 || size.min.value_or(1) < 1 || given < size.min.value_or(1) ||
      given > size.max.value_or(given) || given % size.multiple_of != 0)
    refuse_dynamic(size.name, "the size in the example is " + std::to_string(given),
                   "a positive multiple of multiple_of between min and max");
}

void DynamicSizes::add(const DynamicSize& named) {
  const auto [least, largest] = range_of(named);
  std::int64_t first = 3 + kShifts[sizes_.size()];
  if (largest) first = std::min(first, *largest - kSteps[2]);
  first = std::max({first, least, std::int64_t{2}});  // 1 is special: it is broadcast
  std::vector<std::int64_t> values;
  for (const std::int64_t step : kSteps)
    if (!largest || first + step <= *largest) values.push_back(first + step);
  if (values.size() > kRecordedValues) {
    Size size{named, {}, values[kRecordedValues]};
    std::copy_n(values.begin(), kRecordedValues, size.recorded.begin());
    return sizes_.push_back(std::move(size));
  }
  refuse_dynamic(named.name,
                 "it has too few values from " + std::to_string(first * named.multiple_of) + " to " +
                     std::to_string(*largest * named.multiple_of),
                 "at least six values to try, to find out how other sizes depend on it",
                 "increase max, or export once per value");
}

std::map<std::string, std::string> DynamicSizes::names() const {
  std::map<std::string, std::string> names;
  for (std::size_t i = 0; i < sizes_.size(); ++i) names[size_symbol(i)] = sizes_[i].name;
  return names;
}

DynamicSizes::Range DynamicSizes::range(std::size_t number) const { return range_of(sizes_[number]); }

std::vector<DynamicSizes::Sizes> DynamicSizes::unrecorded() const {
  Sizes sizes;
  for (const Size& size : sizes_) sizes.push_back(size.unrecorded);
  std::vector<Sizes> all{sizes, sizes, sizes};  // within the bounds, and at the given bounds
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    if (sizes_[i].min) all[1][i] = range(i).first;
    const bool has_rows = std::ranges::any_of(sizes_[i].places, [](const auto& at) { return at.dim == 0; });
    if (sizes_[i].max && !(has_rows && *sizes_[i].max > kMostRows)) all[2][i] = *range(i).second;
  }
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

Batch DynamicSizes::resized(const Batch& example, const Sizes& sizes, std::int64_t first) const {
  Batch batch = example;
  for (at::Tensor& tensor : batch.tensors()) tensor = tensor.detach().clone(at::MemoryFormat::Contiguous);
  const auto resize = [&](const DynamicSize::Place& at, std::int64_t size) {
    at::Tensor& tensor = batch.tensors()[at.tensor];
    const at::Tensor indices = at::arange(first, first + size).remainder(tensor.size(at.dim));
    tensor = tensor.index_select(at.dim, indices);
  };
  if (!has_batch_)
    for (const DynamicSize::Place& at : sample_places_) resize(at, samples_);
  for (std::size_t i = 0; i < sizes_.size(); ++i)
    for (const DynamicSize::Place& at : sizes_[i].places) resize(at, sizes[i] * sizes_[i].multiple_of);
  return batch;
}

std::string DynamicSizes::text(const Sizes& sizes) const {
  std::string text = has_batch_ ? "" : "a batch of " + std::to_string(samples_);
  for (std::size_t i = 0; i < sizes_.size(); ++i)
    text += (text.empty() ? "a " : ", ") + sizes_[i].name + " of " +
            std::to_string(sizes[i] * sizes_[i].multiple_of);
  return text;
}

void DynamicSizes::refuse_forward(const Sizes& sizes, const std::string& reason) const {
  const bool is_batch_only = has_batch_ && sizes.size() == 1;
  throw Error({.place = "export of a model",
               .found = "the forward pass fails with " + text(sizes) + ": " + reason,
               .wanted = "a forward pass that also runs with other batch sizes than that of the example",
               .remedy = sizes.empty() ? ""
                         : is_batch_only
                             ? "set dynamic_batch = false to export only for the batch size of the example"
                             : "set the bounds of the dynamic sizes: min, max, multiple_of"});
}

}  // namespace kindling
