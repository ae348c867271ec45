#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kindling/data/data_loader.h"

namespace kindling {

// The values of one tensor of a set of samples.
struct TensorReport {
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  std::vector<std::int64_t> shape{};  // of a sample; -1: varies
  double min = 0, max = 0, mean = 0;  // of the finite values; NaN: there are none
  std::int64_t num_missing = 0;       // NaN
  std::int64_t num_infinite = 0;
};

struct BrokenSample {
  std::int64_t index = 0;
  std::string error{};
};

// One set of samples, such as those for training.
struct SetReport {
  std::string name{};
  std::int64_t num_samples = 0, num_batches = 0;
  std::vector<TensorReport> tensors{};
  std::vector<TensorReport> columns{};  // of the first tensor, if requested
  std::vector<std::int64_t> classes{};  // samples of each class; empty: the last tensor is not one of classes
  std::vector<BrokenSample> broken{};   // the first kMostBrokenSamples
  std::int64_t num_broken = 0;
};

constexpr std::size_t kMostBrokenSamples = 20;
constexpr std::int64_t kMostReportedClasses = 1000;  // more distinct integers are not taken for classes

// Gathers every sample of a loader's set, in order; with columns if the first tensor is [samples, columns].
// `num_names`: of the classes, of which uint8 [samples, num_names] has a 0 or 1 each. A sample that throws a
// DataError is counted as broken; other exceptions reach the caller.
SetReport report_of(std::string name, const DataLoader& loader, bool has_columns = false,
                    std::size_t num_names = 0);

}  // namespace kindling
