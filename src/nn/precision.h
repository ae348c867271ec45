#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kindling/device/device.h"
#include "kindling/tensors/batch.h"
#include "nn/wide_sums.h"

namespace torch::nn {
class Module;
}

namespace kindling {

// TrainerOptions::precision: the types in which a run stores numbers and computes.
struct Precision {
  std::optional<at::ScalarType> weights{};  // and inputs; absent: unchanged
  // of operators that benefit from it; absent: the type of their inputs
  std::optional<at::ScalarType> autocast{};
  bool scales_gradients = false;  // because small ones would underflow

  bool has_16_bits() const { return autocast || weights == at::kBFloat16; }
  static Precision named(const std::string& name);  // one of the choices of TrainerOptions::precision
};

// Converts floating-point parameters and buffers, including those that lazy layers create later; the tensors
// stay the same objects.
void give_precision(torch::nn::Module& model, const Precision& precision);
// The same for its lifetime; its destructor restores the former values.
class PrecisionScope {
 public:
  PrecisionScope(torch::nn::Module& model, const Precision& precision);
  ~PrecisionScope();
  PrecisionScope(const PrecisionScope&) = delete;
  PrecisionScope& operator=(const PrecisionScope&) = delete;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> former_;  // of those with another type
};
Batch in_precision(Batch batch, const Precision& precision);

// TrainerOptions::channels_last for this model. "auto": if a convolution has 32 channels or more and computes
// in 16 bits; always off on a GPU.
bool wants_channels_last(const std::string& option, const torch::nn::Module& model,
                         const Precision& precision, Device device);
// Converts weights and buffers with four dimensions, including those that lazy layers create later. The
// tensors stay the same objects with the same values.
void give_channels_last(torch::nn::Module& model);
Batch in_channels_last(Batch batch);  // its floating-point tensors with four dimensions

// The devices, types and memory layout that a model and its batches are prepared for.
struct Placement {
  std::vector<Device> gpus{};  // empty: the CPU
  Precision precision{};
  bool is_channels_last = false;  // images, and the weights of the trained model

  Device device() const { return gpus.empty() ? cpu() : gpus.front(); }
  bool converts_batches() const { return precision.weights.has_value() || is_channels_last; }
  // Converts a batch to the precision and the memory layout; skips tensors that have them already.
  Batch convert(Batch batch) const;
};

// For its lifetime, operators of this thread on the device compute in the precision's autocast type, and sums
// on the CPU are wide. For a forward pass and its loss; backward uses the same types by itself, but needs
// WideSums of its own. Where gradients are computed, each use of a weight has a cast of its own: LibTorch's
// cache of casts would add up the gradients of all uses, such as the time steps of a recurrent layer, in 16
// bits.
class AutocastScope {
 public:
  AutocastScope(const Precision& precision, Device device);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  bool is_on_;
  at::DeviceType device_;
  bool was_enabled_ = false;
  bool had_cache_ = false;
  at::ScalarType former_type_ = at::kFloat;
  WideSums wide_sums_;
};

// Within a scope, for its lifetime: operators compute in the types of their inputs, and cached casts of
// weights, which may change now, are dropped.
class AutocastPause {
 public:
  explicit AutocastPause(Device device);
  ~AutocastPause();
  AutocastPause(const AutocastPause&) = delete;
  AutocastPause& operator=(const AutocastPause&) = delete;

 private:
  at::DeviceType device_;
  bool was_enabled_;
};

}  // namespace kindling
