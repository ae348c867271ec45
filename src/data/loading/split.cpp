#include "kindling/data/split.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "base/joined.h"
#include "base/mixed_bits.h"
#include "kindling/base/error.h"
#include "kindling/base/number_text.h"

namespace kindling {
namespace {

// Returns 0 … count-1 in a random order that depends on the seed alone.
std::vector<std::int64_t> random_order(std::int64_t count, std::int64_t seed) {
  const std::uint64_t key = mixed_bits(static_cast<std::uint64_t>(seed));
  std::vector<std::pair<std::uint64_t, std::int64_t>> keyed;
  keyed.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i)
    keyed.emplace_back(mixed_bits(key ^ mixed_bits(static_cast<std::uint64_t>(i))), i);
  std::sort(keyed.begin(), keyed.end());
  std::vector<std::int64_t> order;
  order.reserve(keyed.size());
  for (const auto& [bits, index] : keyed) order.push_back(index);
  return order;
}

// Replaces numbers by 0, 1, …, in ascending order of the numbers.
struct DenseCodes {
  std::vector<std::size_t> codes{};  // one per sample
  std::size_t count = 0;             // of distinct numbers
};

DenseCodes dense_codes(const std::vector<std::int64_t>& numbers, std::int64_t num_samples) {
  if (numbers.empty())
    return {.codes = std::vector<std::size_t>(static_cast<std::size_t>(num_samples)), .count = 1};
  std::vector<std::int64_t> distinct(numbers);
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  DenseCodes dense{.count = distinct.size()};
  for (const std::int64_t number : numbers)
    dense.codes.push_back(static_cast<std::size_t>(
        std::lower_bound(distinct.begin(), distinct.end(), number) - distinct.begin()));
  return dense;
}

class Splitter {
 public:
  Splitter(std::int64_t num_samples, const SplitOptions& options)
      : n_(num_samples), options_(options), is_val_(static_cast<std::size_t>(std::max<std::int64_t>(n_, 0))) {
    check();
    classes_ = dense_codes(options_.classes, n_);
  }

  SplitIndices split() {
    options_.groups.empty() ? split_samples() : split_groups();
    SplitIndices indices;
    for (std::int64_t i = 0; i < n_; ++i)
      (is_val_[static_cast<std::size_t>(i)] ? indices.val : indices.train).push_back(i);
    if (indices.train.empty() || indices.val.empty()) refuse_empty(indices.val.empty());
    return indices;
  }

 private:
  std::string key(const char* name) const { return options_.place + "." + name; }

  void check() const {
    if (n_ < 1)
      throw DataError({.place = options_.place, .found = "there are no samples", .wanted = "at least two"});
    const auto require_one_each = [&](const auto& numbers, const char* what) {
      if (!numbers.empty() && numbers.size() != static_cast<std::size_t>(n_))
        throw DataError({.place = options_.place,
                         .found = std::to_string(numbers.size()) + " " + what,
                         .wanted = "one for each of the " + std::to_string(n_) + " samples"});
    };
    require_one_each(options_.classes, "classes");
    require_one_each(options_.groups, "groups");
    if (options_.val_fraction.has_value() == options_.folds.has_value())
      throw ConfigError({.place = options_.place,
                         .found = options_.folds ? "both val_fraction and folds are set"
                                                 : "neither val_fraction nor folds is set",
                         .wanted = "one of them",
                         .remedy = "for example val_fraction = 0.2"});
    if (const auto& fraction = options_.val_fraction; fraction && !(*fraction > 0 && *fraction < 1))
      throw ConfigError({.place = key("val_fraction"),
                         .found = number_text(*fraction),
                         .wanted = "a number > 0 and < 1",
                         .remedy = "for example 0.2"});
    if (options_.folds) check_folds();
  }

  void check_folds() const {
    const std::int64_t folds = *options_.folds;
    if (folds < 2 || folds > n_)
      throw ConfigError(
          {.place = key("folds"),
           .found = counted(folds, "fold") + " of " + counted(n_, "sample"),
           .wanted = "at least 2 folds, and at most one per sample",
           .remedy = folds < 2 ? "for a single split, set val_fraction instead" : "use fewer folds"});
    if (options_.fold < 0 || options_.fold >= folds)
      throw ConfigError({.place = key("fold"),
                         .found = std::to_string(options_.fold),
                         .wanted = "a number from 0 to " + std::to_string(folds - 1),
                         .remedy = "folds are counted from 0"});
  }

  [[noreturn]] void refuse_empty(bool is_val) const {
    throw ConfigError({.place = options_.folds ? key("folds") : key("val_fraction"),
                       .found = std::string("no sample is left for ") + (is_val ? "validation" : "training") +
                                " among " + std::to_string(n_) +
                                (options_.groups.empty() ? " samples" : " samples in groups"),
                       .wanted = "at least one",
                       .remedy = is_val ? "validate a larger fraction" : "validate a smaller fraction"});
  }

  // Deals the samples out in turn, class by class, so that every class is spread evenly.
  void split_samples() {
    std::vector<std::int64_t> order = random_order(n_, options_.seed);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int64_t a, std::int64_t b) { return class_of(a) < class_of(b); });
    for (std::size_t k = 0; k < order.size(); ++k)
      is_val_[static_cast<std::size_t>(order[k])] = is_validated(static_cast<std::int64_t>(k));
    if (options_.val_fraction) put_classes_on_both_sides(order);
  }

  // A class of two samples or more that is missing on one side exchanges a sample with the class that has the
  // most there, relative to its size. `order`: by class.
  void put_classes_on_both_sides(const std::vector<std::int64_t>& order) {
    std::vector<std::int64_t> sizes(classes_.count), validated(classes_.count);
    for (std::size_t i = 0; i < is_val_.size(); ++i) {
      ++sizes[classes_.codes[i]];
      validated[classes_.codes[i]] += is_val_[i] ? 1 : 0;
    }
    for (const bool to_val : {true, false})
      for (std::size_t code = 0; code < classes_.count; ++code) {
        const auto count_on_side = [&](std::size_t c) {
          return to_val ? validated[c] : sizes[c] - validated[c];
        };
        if (sizes[code] < 2 || count_on_side(code) > 0) continue;
        const double fraction = to_val ? *options_.val_fraction : 1 - *options_.val_fraction;
        std::size_t donor = code;
        double most = -std::numeric_limits<double>::infinity();
        for (std::size_t c = 0; c < classes_.count; ++c) {
          const double surplus =
              static_cast<double>(count_on_side(c)) - fraction * static_cast<double>(sizes[c]);
          if (count_on_side(c) >= 2 && surplus > most) most = surplus, donor = c;
        }
        if (donor == code) break;  // more classes than samples on this side
        move_first(order, code, to_val);
        move_first(order, donor, !to_val);
        validated[code] += to_val ? 1 : -1;
        validated[donor] -= to_val ? 1 : -1;
      }
  }

  void move_first(const std::vector<std::int64_t>& order, std::size_t code, bool to_val) {
    for (const std::int64_t sample : order)
      if (class_of(sample) == code && is_val_[static_cast<std::size_t>(sample)] != to_val) {
        is_val_[static_cast<std::size_t>(sample)] = to_val;
        return;
      }
  }

  bool is_validated(std::int64_t k) const {
    if (options_.folds) return k % *options_.folds == options_.fold;
    const auto below = [&](std::int64_t count) {
      return std::floor(static_cast<double>(count) * *options_.val_fraction + 0.5);
    };
    return below(k + 1) > below(k);
  }

  std::size_t class_of(std::int64_t sample) const { return classes_.codes[static_cast<std::size_t>(sample)]; }

  struct Group {
    std::size_t number = 0;
    std::int64_t size = 0;
    std::map<std::size_t, double> fractions{};  // of the samples of each class
  };

  // In random order.
  std::vector<Group> groups() {
    of_group_ = dense_codes(options_.groups, n_);
    std::vector<double> class_sizes(classes_.count);
    std::vector<Group> all(of_group_.count);
    for (const std::size_t code : classes_.codes) ++class_sizes[code];
    for (std::size_t i = 0; i < of_group_.codes.size(); ++i) {
      Group& group = all[of_group_.codes[i]];
      group.number = of_group_.codes[i];
      ++group.size;
      group.fractions[classes_.codes[i]] += 1 / class_sizes[classes_.codes[i]];
    }
    std::vector<Group> ordered;
    for (const std::int64_t i : random_order(static_cast<std::int64_t>(all.size()), options_.seed))
      ordered.push_back(std::move(all[static_cast<std::size_t>(i)]));
    return ordered;
  }

  void split_groups() {
    const std::vector<Group> all = groups();
    const std::int64_t least = options_.folds.value_or(2);
    if (static_cast<std::int64_t>(all.size()) < least)
      throw ConfigError({.place = key("group"),
                         .found = counted(all.size(), "group"),
                         .wanted = "at least " + std::to_string(least) +
                                   (options_.folds ? ", one for each fold" : ", to validate one of them"),
                         .remedy = options_.folds ? "use fewer folds" : "split without groups"});
    const std::vector<bool> validated = options_.folds ? fold_of_groups(all) : fraction_of_groups(all);
    for (std::size_t i = 0; i < is_val_.size(); ++i) is_val_[i] = validated[of_group_.codes[i]];
  }

  // Adding a group to the fold with the least sum of f·F (f: the group's, F: the fold's fraction of a class)
  // keeps the sum of squares over all folds and classes as small as a greedy choice can.
  std::vector<bool> fold_of_groups(std::vector<Group> all) const {
    std::stable_sort(all.begin(), all.end(), [](const Group& a, const Group& b) { return a.size > b.size; });
    const auto folds = static_cast<std::size_t>(*options_.folds);
    std::vector<std::vector<double>> fractions(folds, std::vector<double>(classes_.count));
    std::vector<std::int64_t> sizes(folds);
    std::vector<bool> validated(all.size());
    for (const Group& group : all) {
      std::size_t best = 0;
      double least = std::numeric_limits<double>::infinity();
      for (std::size_t fold = 0; fold < folds; ++fold) {
        double cost = 0;
        for (const auto& [code, fraction] : group.fractions) cost += fraction * fractions[fold][code];
        if (cost > least || (cost == least && sizes[fold] >= sizes[best])) continue;
        least = cost;
        best = fold;
      }
      for (const auto& [code, fraction] : group.fractions) fractions[best][code] += fraction;
      sizes[best] += group.size;
      validated[group.number] = best == static_cast<std::size_t>(options_.fold);
    }
    return validated;
  }

  // Takes a group if it reduces the sum of (F - val_fraction)² over the classes, F being the fraction of a
  // class in the validation samples.
  std::vector<bool> fraction_of_groups(const std::vector<Group>& all) const {
    std::vector<double> fractions(classes_.count);
    std::vector<bool> validated(all.size());
    std::size_t num_taken = 0;
    for (const Group& group : all) {
      double change = 0;
      for (const auto& [code, fraction] : group.fractions)
        change += fraction * (fraction + 2 * (fractions[code] - *options_.val_fraction));
      if (change >= 0 || num_taken + 1 == all.size()) continue;
      for (const auto& [code, fraction] : group.fractions) fractions[code] += fraction;
      validated[group.number] = true;
      ++num_taken;
    }
    if (num_taken > 0) return validated;
    const auto smallest = std::min_element(all.begin(), all.end(),
                                           [](const Group& a, const Group& b) { return a.size < b.size; });
    validated[smallest->number] = true;
    return validated;
  }

  const std::int64_t n_;
  const SplitOptions& options_;
  std::vector<bool> is_val_;
  DenseCodes classes_, of_group_;
};

}  // namespace

SplitIndices split_indices(std::int64_t num_samples, const SplitOptions& options) {
  return Splitter(num_samples, options).split();
}

SplitIndices split_by_time(const std::vector<double>& times, double val_fraction, const std::string& place) {
  std::vector<double> sorted(times);
  std::sort(sorted.begin(), sorted.end());
  const double wanted = static_cast<double>(times.size()) * (1 - val_fraction);
  std::size_t begin = 0;  // of the validation samples, in the order of time
  const auto distance = [&](std::size_t at) { return std::abs(static_cast<double>(at) - wanted); };
  for (std::size_t at = 1; at < sorted.size(); ++at)
    if (sorted[at - 1] < sorted[at] && (begin == 0 || distance(at) <= distance(begin))) begin = at;
  if (begin == 0)
    throw ConfigError({.place = place + ".time",
                       .found = sorted.empty() ? "there are no samples" : "all times are equal",
                       .wanted = "at least two different times"});
  SplitIndices indices;
  for (std::size_t i = 0; i < times.size(); ++i)
    (times[i] < sorted[begin] ? indices.train : indices.val).push_back(static_cast<std::int64_t>(i));
  return indices;
}

}  // namespace kindling
