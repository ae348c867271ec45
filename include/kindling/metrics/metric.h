#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>

#include "kindling/base/export.h"
#include "kindling/metrics/logged_values.h"

namespace kindling {

// A number over all samples of an epoch that is computed from sums over its batches: an accuracy, a confusion
// matrix, a mean error. The sums stay on the device; the number is computed once they have reached the host
// with the epoch's log. A metric itself holds no sums, so one object serves training and validation, and
// several trainers.
class KINDLING_API Metric {
 public:
  virtual ~Metric();

  // Returns what a batch adds to the sums: a tensor of the same shape for every batch, of any dtype, on the
  // device of `outputs`. Override update(), update_weighted() or both. Runs without autograd and must not
  // read tensors on the host. A single number is also logged for every step. The default calls
  // update_weighted() without weights.
  virtual at::Tensor update(const at::Tensor& outputs, const at::Tensor& labels) const;

  // The same for samples with weights, [batch] on the device of `outputs`; undefined weights count each
  // sample once. Returns a tensor of the shape that update() returns. The default throws DataError.
  virtual at::Tensor update_weighted(const at::Tensor& outputs, const at::Tensor& labels,
                                     const at::Tensor& weights) const;

  // Returns how many answers a batch has if these are not its samples: pixels, tokens. Called for batches
  // that add a single number without weights. The default returns nothing: samples count.
  virtual std::optional<std::int64_t> num_answers(const at::Tensor& outputs, const at::Tensor& labels) const;

  // Returns how many answers of a batch count if only the device knows: one number there. Called instead of
  // num_answers() if it is defined. `num_labels`: the number of labels that are not ignored (-100), if the
  // loss has just counted them; else undefined. The default returns an undefined tensor.
  virtual at::Tensor num_counted(const at::Tensor& outputs, const at::Tensor& labels,
                                 const at::Tensor& num_labels) const;

  // Returns the number: from the sums (row by row) that the batches have added, in double precision, and from
  // the number of their samples (of their answers if num_answers() returns them). NaN if it is undefined.
  virtual double compute(std::span<const double> sums, double num_samples) const = 0;

  // Returns all reported values, each with the suffix of its name: "[2]" becomes val_f1_per_class[2]. The
  // default returns the result of compute() under the metric's own name.
  virtual NamedValues values(std::span<const double> sums, double num_samples) const;
};

}  // namespace kindling
