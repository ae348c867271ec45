#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kindling/nn/module.h"

namespace kindling {

// What a model's captured steps depend on in addition to the values of its parameters: which layers,
// parameters and buffers are registered, which tensors and options the members of LibTorch's own layers hold,
// addresses and layouts of tensors, which of them require gradients and have hooks, which layers are in
// training mode, and how often Module::changed() has been called. It cannot see other members.
class ModelFingerprint {
 public:
  explicit ModelFingerprint(const torch::nn::Module& model);

  // Returns why the model's steps cannot be captured, whatever they do; empty: they can.
  std::string capture_obstacle() const;
  // True if nothing has changed. Cheap enough for every step.
  bool holds() const;

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
  // The counts of what is registered; the items are consecutive in `registered_`.
  struct Layer {
    std::shared_ptr<torch::nn::Module> module;
    bool is_training;
    std::size_t num_parameters, num_buffers, num_children;
  };
  struct Member {
    const at::Tensor* place;
    at::Tensor tensor;  // kept, so that no other tensor gets its address
  };
  // The bytes of an options struct; the copies are consecutive in `option_bytes_`.
  struct Options {
    const void* place;
    std::size_t size;
  };
  template <class Numbers>
  struct List {
    const Numbers* place;
    Numbers numbers;
  };
  struct ChangeCount {
    const Module* module;
    std::int64_t num_changes;
  };
  void take_members_of(const torch::nn::Module& layer);
  void take_options_of(const torch::nn::Module& layer);
  template <class Layer>
  bool take_options(const torch::nn::Module& layer);
  void add_options(const void* place, std::size_t size);
  bool has_same_options() const;
  bool has_same_parts() const;

  std::vector<at::Tensor> parameters_, buffers_;
  std::vector<Seen> seen_parameters_, seen_buffers_;
  std::vector<Layer> layers_;
  std::vector<const void*> registered_;
  std::vector<at::Tensor> registered_tensors_;  // kept for the same reason
  std::vector<Member> members_;
  std::vector<Options> options_;
  std::vector<std::byte> option_bytes_;
  std::vector<List<std::vector<std::int64_t>>> sizes_;
  std::vector<List<std::optional<std::vector<std::int64_t>>>> upsampled_sizes_;
  std::vector<List<std::optional<std::vector<double>>>> scales_;
  std::vector<ChangeCount> change_counts_;
};

}  // namespace kindling
