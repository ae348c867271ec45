#pragma once

#include <ATen/ops/empty.h>
#include <torch/nn/cloneable.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/nn/weight_init.h"
#include "kindling/tensors/lazy.h"
#include "kindling/tensors/move.h"

namespace kindling {

// Base of layers that determine their input size from the first batch. Until then they have no parameters;
// then they have `weight` [out, in, kernel…] and `bias` [out], named as in Python.
template <class Layer>
class KINDLING_API LazyWeights : public torch::nn::Cloneable<Layer>, public LazyLayer {
 public:
  bool is_materialized() const override { return weight.defined() && !draws_in_next_forward_; }
  void materialize_like(const at::Tensor& like) override {
    if (like.sizes().size() == shape_.size()) materialize(like.size(1), cpu());
  }
  std::vector<std::string> parameter_names() const override {
    return has_bias_ ? std::vector<std::string>{"weight", "bias"} : std::vector<std::string>{"weight"};
  }
  void dematerialize() override {
    this->parameters_.clear();
    weight = bias = at::Tensor();
    draws_in_next_forward_ = false;
  }
  bool draw_in_next_forward() override {
    draws_in_next_forward_ = weight.defined();
    return true;
  }

  // clone() calls this on a copy without registrations: registers the parameters again; clone() then copies
  // the values.
  void reset() override {
    draws_in_next_forward_ = false;
    if (weight.defined()) materialize(weight.size(1), weight.device());
  }

  at::Tensor weight, bias;  // undefined until the first batch

 protected:
  // `shape` is the weight's, with any number in place of the input size.
  LazyWeights(std::vector<std::int64_t> shape, bool has_bias, WeightInit init)
      : shape_(std::move(shape)), has_bias_(has_bias), init_(init) {}

  // Creates the parameters, or draws the values of those that have only their shapes.
  void materialize(std::int64_t input_size, at::Device device) {
    shape_[1] = input_size;
    at::Tensor made_weight = at::empty(shape_, at::kFloat), made_bias;
    if (has_bias_) made_bias = at::empty({shape_[0]}, at::kFloat);
    init_weights(init_, made_weight, made_bias);
    if (channels_last && made_weight.dim() == 4)
      made_weight = made_weight.contiguous(at::MemoryFormat::ChannelsLast);
    if (std::exchange(draws_in_next_forward_, false)) {
      write_values(weight, made_weight.to(type));
      if (has_bias_) write_values(bias, made_bias.to(type));
      return;
    }
    const auto made = [&](const char* name, const at::Tensor& values) {
      return this->register_parameter(name, move_to(values.to(type), device), !frozen.contains(name));
    };
    weight = made("weight", made_weight);
    if (has_bias_) bias = made("bias", made_bias);
  }

 private:
  std::vector<std::int64_t> shape_;
  bool has_bias_, draws_in_next_forward_ = false;
  WeightInit init_;
};

}  // namespace kindling
