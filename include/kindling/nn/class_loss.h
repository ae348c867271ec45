#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/metrics/logged_values.h"

namespace kindling {

struct ClassLossOptions {
  double label_smoothing = 0;
  double focal_gamma = 0;
  std::optional<std::int64_t> ignore_index{};
  bool multi_label = false;
  std::vector<double> pos_weight{};

  static constexpr auto fields = kindling::fields(
      kindling::field("label_smoothing", &ClassLossOptions::label_smoothing,
                      {.doc = "part of each label that is spread over all classes in the loss",
                       .min = 0,
                       .max = 1,
                       .max_excluded = true}),
      kindling::field("focal_gamma", &ClassLossOptions::focal_gamma,
                      {.doc = "exponent of the focal loss, which lowers the loss of samples that are "
                              "classified well; 0: off",
                       .min = 0}),
      kindling::field("ignore_index", &ClassLossOptions::ignore_index,
                      {.doc = "label that does not count in the loss and in the accuracy; absent: -100 for "
                              "class numbers, none for others",
                       .example = "255"}),
      kindling::field("multi_label", &ClassLossOptions::multi_label,
                      {.doc = "each class has a yes or no of its own: labels are 0 and 1 of the outputs' "
                              "shape, and the loss is binary cross-entropy"}),
      kindling::field("pos_weight", &ClassLossOptions::pos_weight,
                      {.doc = "weight of the ones among the labels of a multi-label loss: one per class, or "
                              "one for all; empty: 1",
                       .min = 0,
                       .example = "[3.0]"}));
};

// The loss of a classifier. Its value and gradient are those of PyTorch's cross_entropy, or of
// binary_cross_entropy_with_logits (multi_label), with the same options, a mean over the labels that count:
//   class numbers        Σ w(y)·l / Σ w(y), w: the class weights; also with label smoothing, as in PyTorch
//   class probabilities  a mean over rows, also with class weights, as in PyTorch
//   multi_label          a mean over all numbers that are not ignored
// The focal loss (Lin et al., 2017) multiplies the term of each class by (1 − p)^γ, p: its probability; with
// multi_label it is that of torchvision's sigmoid_focal_loss with alpha −1.
class KINDLING_API ClassLoss {
 public:
  // Throws ConfigError for values out of range and for options that contradict each other.
  void set_options(const ClassLossOptions& options);
  const ClassLossOptions& options() const noexcept { return options_; }
  // See Classifier::set_class_weights().
  void set_class_weights(const at::Tensor& weights);
  const at::Tensor& class_weights() const noexcept { return class_weights_; }
  // True if a loss has used the present weights.
  bool has_used_class_weights() const noexcept { return !cast_weights_.empty(); }

  // `outputs`: logits [batch, classes, …]. `labels`: int64 [batch, …], or floating-point class probabilities
  // of the outputs' shape; with multi_label numbers of the outputs' shape. The weight is undefined if the
  // mean is over the samples. Reads nothing on the host. `place` names the caller in errors. Throws DataError
  // for other shapes and dtypes, ConfigError for another number of classes than of weights.
  WeightedLoss operator()(const char* place, const at::Tensor& outputs, const at::Tensor& labels);
  // The same for log probabilities and class numbers.
  WeightedLoss of_log_probabilities(const char* place, const at::Tensor& outputs, const at::Tensor& labels);
  // True if a loss has been computed since the options were set.
  bool has_run() const noexcept { return has_run_; }

 private:
  WeightedLoss of_probabilities(const at::Tensor& outputs, const at::Tensor& labels,
                                const at::Tensor& weights);
  WeightedLoss of_each_class(const char* place, const at::Tensor& outputs, const at::Tensor& labels);
  at::Tensor weights_for(const char* place, const at::Tensor& outputs);

  ClassLossOptions options_;
  at::Tensor class_weights_, pos_weight_;  // float64 [classes] on the CPU; undefined: none
  // Of each device and dtype that was used; captured steps refer to them.
  std::vector<at::Tensor> cast_weights_, cast_pos_weights_;
  bool has_run_ = false;
};

// A model with such a loss, which the keys of [model] set.
class KINDLING_API ClassLossModel {
 public:
  virtual ~ClassLossModel() = default;

  // Throws ConfigError, also for options that the model's loss does not have. During a fit only
  // label_smoothing, focal_gamma and pos_weight may change; they count from the next step on.
  virtual void set_loss_options(const ClassLossOptions& options);
  const ClassLossOptions& loss_options() const noexcept { return class_loss_.options(); }

  // Weighs each class in the loss of training, validation and test, like the `weight` of PyTorch's
  // CrossEntropyLoss. Takes floating-point numbers [classes], finite, at least 0 and not all 0; copies them
  // to the CPU as float64. Undefined: no weights. They are options, not part of the state dict: set them
  // again before a resumed fit or an evaluation. For weights that balance the classes, see
  // balanced_class_weights() in sampler.h. A step of several batches, ranks or shards has the gradient of the
  // weighted mean over all of its labels, and logged means of the loss are weighted means over all labels,
  // whatever the batches. As in PyTorch, the loss of a batch whose labels all have the weight 0 is NaN. A
  // subclass with its own loss() or training_step() applies them itself; a fit warns if loss() never ran.
  // Throws ConfigError, and then keeps the weights that were set before.
  virtual void set_class_weights(const at::Tensor& weights) { class_loss_.set_class_weights(weights); }
  const at::Tensor& class_weights() const noexcept { return class_loss_.class_weights(); }
  // True if loss() has used the present weights.
  bool has_used_class_weights() const noexcept { return class_loss_.has_used_class_weights(); }
  bool has_used_loss_options() const noexcept { return class_loss_.has_run(); }

 protected:
  ClassLoss class_loss_;
};

}  // namespace kindling
