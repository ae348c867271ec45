#pragma once

#include <array>
#include <typeinfo>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/optim/foreach_optimizer.h"

namespace kindling {

// Names and defaults as in torch.optim.NAdam.
struct NAdamOptions {
  double lr = 2e-3;
  std::array<double, 2> betas{0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum_decay = 4e-3;
  bool decoupled_weight_decay = false;
  bool maximize = false;

  static constexpr auto fields = kindling::fields(
      kindling::field("lr", &NAdamOptions::lr, {.doc = "learning rate", .min = 0}),
      kindling::field("betas", &NAdamOptions::betas,
                      {.doc = "decay of the running means of gradient and squared gradient",
                       .min = 0,
                       .max = 1,
                       .max_excluded = true}),
      kindling::field("eps", &NAdamOptions::eps, {.doc = "added to the denominator", .min = 0}),
      kindling::field("weight_decay", &NAdamOptions::weight_decay,
                      {.doc = "L2 penalty, added to the gradient; see decoupled_weight_decay", .min = 0}),
      kindling::field("momentum_decay", &NAdamOptions::momentum_decay,
                      {.doc = "speed at which the momentum grows to the first of betas", .min = 0}),
      kindling::field("decoupled_weight_decay", &NAdamOptions::decoupled_weight_decay,
                      {.doc = "decay the weights directly, as AdamW does"}),
      kindling::field("maximize", &NAdamOptions::maximize, {.doc = "maximize instead of minimize"}));
};

// Adam with Nesterov's momentum (Dozat, 2016, with PyTorch's schedule of the momentum): μₜ = β₁·(1 −
// ½·0.96^(t·momentum_decay)), p ← p − lr·((1−μₜ)·g / (1−Πμ) + μₜ₊₁·m / (1−Πμ·μₜ₊₁)) / (√v̂ + eps). Its state:
// `step`, `exp_avg`, `exp_avg_sq`, `mu_product` (float32 scalar: Πμ).
class KINDLING_API NAdam : public ForeachOptimizer {
 public:
  explicit NAdam(ParameterGroups parameters, NAdamOptions options = {});
  TorchOptions python_options() const override;
  bool is_per_parameter() const override { return typeid(*this) == typeid(NAdam); }

 protected:
  void update_part(const Part& part) override;

 private:
  at::Tensor mu(const at::Tensor& step) const;

  NAdamOptions options_;
  std::vector<at::Tensor>&exp_avgs_, &exp_avg_sqs_, &mu_products_;
};

}  // namespace kindling
