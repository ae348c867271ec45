#include "programs/model_as_it_was.h"

#include <ATen/ops/equal.h>

namespace kindling {

ModelAsItWas::ModelAsItWas(torch::nn::Module& model, bool train)
    : random_(cpu()), mode_(model), states_(model, /*of_training=*/true), gradients_(train) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& parameter : model.parameters()) values_.emplace_back(parameter, parameter.clone());
  for (const at::Tensor& buffer : model.buffers()) values_.emplace_back(buffer, buffer.clone());
  if (train) model.train();
}

// What has not been changed is left alone, as a graph of the user's may wait for its backward.
void ModelAsItWas::put_back() const {
  const at::NoGradGuard no_grad;
  for (const auto& [tensor, before] : values_)
    if (!tensor.equal(before)) tensor.copy_(before);
}

}  // namespace kindling
