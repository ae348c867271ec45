#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kindling/device/device.h"
#include "kindling/tensors/batch.h"

namespace torch::nn {
class Module;
}

namespace kindling {

// TrainerOptions::precision: the types in which a run keeps its numbers and computes.
struct Precision {
  std::optional<at::ScalarType> weights{};   // and inputs; absent: each stays as it is
  std::optional<at::ScalarType> autocast{};  // of operators that gain by it; absent: as their inputs are
  bool scales_gradients = false;             // because small ones would be lost

  static Precision named(const std::string& name);  // one of the choices of TrainerOptions::precision
};

// Floating-point parameters and buffers get their type, those that lazy layers are yet to make, too; the
// tensors stay the same ones.
void give_precision(torch::nn::Module& model, const Precision& precision);
// The same while it lives; then they have the values again that they had.
class PrecisionScope {
 public:
  PrecisionScope(torch::nn::Module& model, const Precision& precision);
  ~PrecisionScope();
  PrecisionScope(const PrecisionScope&) = delete;
  PrecisionScope& operator=(const PrecisionScope&) = delete;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> former_;  // of those that were of another type
};
Batch in_precision(Batch batch, const Precision& precision);

// TrainerOptions::channels_last for this model. "auto": where a convolution has 32 channels or more and
// computes with 16 bits; always off on a GPU.
bool wants_channels_last(const std::string& option, const torch::nn::Module& model,
                         const Precision& precision, Device device);
// Converts weights and buffers with four dimensions, and those that lazy layers are yet to make. The tensors
// stay the same objects with the same values.
void give_channels_last(torch::nn::Module& model);
Batch in_channels_last(Batch batch);  // its floating-point tensors with four dimensions

// Where and how the tensors of a run are stored: what a model and its batches are prepared for.
struct Placement {
  std::vector<Device> gpus{};  // empty: the CPU
  Precision precision{};
  bool is_channels_last = false;  // images, and the weights of the model that is trained

  Device device() const { return gpus.empty() ? cpu() : gpus.front(); }
  bool converts_batches() const { return precision.weights.has_value() || is_channels_last; }
  // Converts a batch to the precision and the memory layout; tensors that have them already stay as they are.
  Batch convert(Batch batch) const;
};

// While it lives, operators of this thread on the device compute in the precision's autocast type. For a
// forward pass and its loss; backward follows them by itself.
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
  at::ScalarType former_type_ = at::kFloat;
};

// While it lives, within a scope: operators compute as their inputs are, and casts of weights that may change
// now are forgotten.
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
