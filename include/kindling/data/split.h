#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kindling/base/export.h"

namespace kindling {

// How samples are divided into training and validation samples: by a fraction, or as one of several folds.
struct SplitOptions {
  std::optional<double> val_fraction{};  // > 0 and < 1
  std::optional<std::int64_t> folds{};   // at least 2; fold number `fold` (from 0) is validated
  std::int64_t fold = 0;
  std::int64_t seed = 0;
  // One class per sample, any numbers: each class is divided in the same proportion. Empty: not stratified.
  std::vector<std::int64_t> classes{};
  // One group per sample, any numbers: the samples of a group stay together. Empty: no groups.
  std::vector<std::int64_t> groups{};
  std::string place = "split";  // in messages: "data" for "data.folds"
};

// Indices of samples, ascending.
struct SplitIndices {
  std::vector<std::int64_t> train{}, val{};
};

// Divides the samples 0 … num_samples-1. The result depends on the arguments alone, on every platform and
// with every version of Kindling and LibTorch.
//
// - Every sample is in `train` or in `val`, once. Over all values of `fold`, every sample is in `val` once.
// - Without groups, `val` has num_samples * val_fraction samples, rounded to the nearest, or num_samples /
//   folds, rounded up or down. With classes, the count of each class is off its exact proportion by less than
//   one sample. For a fraction, a class of two samples or more is also on both sides, as far as `val` has a
//   sample for each class: it exchanges one with the class that can best do without.
// - With groups, sizes and classes are balanced as well as whole groups allow: larger groups first, each into
//   the fold that lacks it most; for a fraction in random order, as long as a group brings `val` closer to
//   it.
//
// Throws ConfigError for options out of range, for both or neither of val_fraction and folds, for more folds
// than samples or groups, and where no sample is left on one side. Throws DataError for a number of classes
// or groups other than num_samples.
KINDLING_API SplitIndices split_indices(std::int64_t num_samples, const SplitOptions& options);

// Divides samples by their times (no NaN), in any order: `val` has the last ones, as many as come closest to
// `val_fraction` if samples of equal time stay together; at least one of either. Throws ConfigError, at the
// key `time` of `place`, if all times are equal.
KINDLING_API SplitIndices split_by_time(const std::vector<double>& times, double val_fraction,
                                        const std::string& place = "split");

}  // namespace kindling
