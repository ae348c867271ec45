#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "kindling/base/export.h"
#include "kindling/metrics/logged_values.h"

namespace kindling {

// A number about all samples of an epoch that comes from sums over its batches: an accuracy, a confusion, a
// mean error. The sums stay on the device; the number is computed once they have come to the host with the
// epoch's log. A metric itself holds no sums, so that one object serves training and validation, and several
// trainers.
class KINDLING_API Metric {
 public:
  virtual ~Metric();

  // Override update(), update_weighted() or both. Returns what a batch adds to the sums: a tensor of the same
  // shape for every batch, of any dtype, on the device of `outputs`. Reads nothing on the host. Runs without
  // autograd. A single number is logged for every step, too. By default it calls update_weighted() without
  // weights.
  virtual at::Tensor update(const at::Tensor& outputs, const at::Tensor& labels) const;

  // The same where samples have weights, [batch] on the device of `outputs`; undefined: each counts once.
  // Returns a tensor of the shape that update() returns. The default throws DataError.
  virtual at::Tensor update_weighted(const at::Tensor& outputs, const at::Tensor& labels,
                                     const at::Tensor& weights) const;

  // The number: from the sums (row by row) of what the batches have added, in double precision, and from how
  // many samples they had. NaN where there is none.
  virtual double compute(std::span<const double> sums, double num_samples) const = 0;

  // All that is reported, each with what its name ends in: "[2]" makes val_f1_per_class[2] of it. Default:
  // what compute() gives, under the metric's own name.
  virtual NamedValues values(std::span<const double> sums, double num_samples) const;
};

}  // namespace kindling
