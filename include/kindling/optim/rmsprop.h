#pragma once

#include <typeinfo>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/optim/foreach_optimizer.h"

namespace kindling {

// Names and defaults as in torch.optim.RMSprop.
struct RmsPropOptions {
  double lr = 1e-2;
  double alpha = 0.99;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
  bool centered = false;
  bool maximize = false;

  static constexpr auto fields = kindling::fields(
      kindling::field("lr", &RmsPropOptions::lr, {.doc = "learning rate", .min = 0}),
      kindling::field("alpha", &RmsPropOptions::alpha,
                      {.doc = "decay of the running mean of the squared gradient", .min = 0, .max = 1}),
      kindling::field("eps", &RmsPropOptions::eps, {.doc = "added to the denominator", .min = 0}),
      kindling::field("weight_decay", &RmsPropOptions::weight_decay,
                      {.doc = "L2 penalty, added to the gradient", .min = 0}),
      kindling::field("momentum", &RmsPropOptions::momentum, {.doc = "momentum factor", .min = 0}),
      kindling::field("centered", &RmsPropOptions::centered,
                      {.doc = "divide by the standard deviation of the gradient"}),
      kindling::field("maximize", &RmsPropOptions::maximize, {.doc = "maximize instead of minimize"}));
};

// RMSprop (Hinton, 2012, lecture 6e), centered as in Graves (2013), with eps outside of the root, as in
// PyTorch: s ← α·s + (1−α)·g², p ← p − lr·g / (√s + eps). Its state: `step`, `square_avg`, with momentum
// `momentum_buffer`, centered `grad_avg`.
class KINDLING_API RmsProp : public ForeachOptimizer {
 public:
  explicit RmsProp(ParameterGroups parameters, RmsPropOptions options = {});
  TorchOptions python_options() const override;
  bool is_per_parameter() const override { return typeid(*this) == typeid(RmsProp); }

 protected:
  void update_part(const Part& part) override;

 private:
  RmsPropOptions options_;
  std::vector<at::Tensor>&square_avgs_, &momentum_buffers_;
  std::vector<at::Tensor>* grad_avgs_;  // centered
};

}  // namespace kindling
