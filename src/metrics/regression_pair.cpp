#include "metrics/regression_pair.h"

#include <ATen/ops/ones.h>

#include "kindling/base/error.h"
#include "metrics/class_answers.h"
#include "tensors/shape_text.h"

namespace kindling {

RegressionPair regression_pair(const char* place, const at::Tensor& outputs, const at::Tensor& labels,
                               const at::Tensor& weights) {
  const bool are_numbers =
      outputs.is_floating_point() && !labels.is_complex() && labels.scalar_type() != at::kBool;
  if (!are_numbers || outputs.dim() == 0 || outputs.sizes() != labels.sizes())
    throw DataError({.place = place,
                     .found = "the labels are " + type_text(labels) + ", the outputs " + type_text(outputs),
                     .wanted = "numbers of the same shape [batch, …], the outputs floating-point",
                     .remedy = "convert them where they are made: labels.unsqueeze(1), outputs.squeeze(1)"});
  const std::int64_t batch = outputs.size(0);
  const std::int64_t numbers = batch > 0 ? outputs.numel() / batch : 1;
  const at::Tensor of_outputs = outputs.to(at::kDouble).reshape({batch, numbers});
  return {.outputs = of_outputs,
          .labels = labels.to(at::kDouble).reshape({batch, numbers}),
          .weights = weights.defined() ? weights_of(place, weights, {batch})
                                       : at::ones({batch}, of_outputs.options())};
}

}  // namespace kindling
