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

  // The same as update(), for outputs of a training step whose NaN would make its loss NaN, so that it does
  // not count. Override it if update() needs operators that handle NaN. The default calls update().
  virtual at::Tensor update_without_nan(const at::Tensor& outputs, const at::Tensor& labels) const;

  // Returns how many answers have no class because one of their outputs is NaN: one number on the device of
  // the outputs. A log counts them, and their number is reported once per epoch. The default returns an
  // undefined tensor: the metric has no classes.
  virtual at::Tensor num_without_class(const at::Tensor& outputs, const at::Tensor& labels) const;

  // Returns whether the metric needs all samples of an epoch at once. update() then returns rows of numbers,
  // float32 or float64 [n, …], which EpochLog keeps on the device instead of adding them up. Rows of a
  // skipped step are filled with NaN. The default returns false.
  virtual bool keeps_samples() const { return false; }
  // Called at the end of an epoch if keeps_samples(), with the rows of all batches and ranks, in any order.
  // Returns the sums for compute(), of any shape, on the same device. Runs without autograd and must not read
  // tensors on the host. The default throws DataError.
  virtual at::Tensor sums_of(const at::Tensor& samples) const;

  // Returns the number: from the sums (row by row) that the batches have added, in double precision, and from
  // the number of their samples (of their answers if num_answers() returns them). NaN if it is undefined.
  virtual double compute(std::span<const double> sums, double num_samples) const = 0;

  // Returns all reported values, each with the suffix of its name: "[2]" becomes val_f1_per_class[2]. The
  // default returns the result of compute() under the metric's own name.
  virtual NamedValues values(std::span<const double> sums, double num_samples) const;
};

}  // namespace kindling
