#pragma once

#include <array>
#include <typeinfo>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/optim/foreach_optimizer.h"

namespace kindling {

// Names and defaults as in torch.optim.RAdam.
struct RAdamOptions {
  double lr = 1e-3;
  std::array<double, 2> betas{0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled_weight_decay = false;
  bool maximize = false;

  static constexpr auto fields = kindling::fields(
      kindling::field("lr", &RAdamOptions::lr, {.doc = "learning rate", .min = 0}),
      kindling::field("betas", &RAdamOptions::betas,
                      {.doc = "decay of the running means of gradient and squared gradient",
                       .min = 0,
                       .max = 1,
                       .max_excluded = true}),
      kindling::field("eps", &RAdamOptions::eps, {.doc = "added to the denominator", .min = 0}),
      kindling::field("weight_decay", &RAdamOptions::weight_decay,
                      {.doc = "L2 penalty, added to the gradient; see decoupled_weight_decay", .min = 0}),
      kindling::field("decoupled_weight_decay", &RAdamOptions::decoupled_weight_decay,
                      {.doc = "decay the weights directly, as AdamW does"}),
      kindling::field("maximize", &RAdamOptions::maximize, {.doc = "maximize instead of minimize"}));
};

// Rectified Adam (Liu et al., 2020, algorithm 2): like Adam once the variance of its denominator is bounded
// (ρₜ > 5, as in PyTorch), times the rectification rₜ; before that p ← p − lr·m̂. Its state: `step`,
// `exp_avg`, `exp_avg_sq`.
class KINDLING_API RAdam : public ForeachOptimizer {
 public:
  explicit RAdam(ParameterGroups parameters, RAdamOptions options = {});
  TorchOptions python_options() const override;
  bool is_per_parameter() const override { return typeid(*this) == typeid(RAdam); }

 protected:
  void update_part(const Part& part) override;

 private:
  at::Tensor rectification(const at::Tensor& step) const;

  RAdamOptions options_;
  std::vector<at::Tensor>&exp_avgs_, &exp_avg_sqs_;
};

}  // namespace kindling
