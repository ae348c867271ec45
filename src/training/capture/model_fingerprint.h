#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace kindling {

// What of a model its recorded steps depend on beside the values of its parameters: where these lie and how,
// which of them learn and have hooks, which layers are in training mode.
class ModelLook {
 public:
  explicit ModelLook(const torch::nn::Module& model);

  // Why its steps cannot be recorded, whatever they do; empty: nothing speaks against it.
  std::string why_not() const;
  // Whether all of it is as it was. Cheap.
  bool holds() const;
  // Whether the model still has the same layers, parameters and buffers.
  bool has_same_parts(const torch::nn::Module& model) const;

  const std::vector<at::Tensor>& parameters() const noexcept { return parameters_; }
  const std::vector<at::Tensor>& buffers() const noexcept { return buffers_; }

 private:
  struct Seen {
    const void* data;
    std::uint64_t layout;  // type, sizes and strides
    bool requires_grad, has_hooks;
    friend bool operator==(const Seen&, const Seen&) = default;
  };
  static Seen seen(const at::Tensor& tensor);

  std::vector<at::Tensor> parameters_, buffers_;
  std::vector<Seen> seen_parameters_, seen_buffers_;
  std::vector<std::shared_ptr<torch::nn::Module>> layers_;
  std::vector<bool> is_training_;
};

}  // namespace kindling
