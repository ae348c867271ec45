#pragma once

#include <array>
#include <typeinfo>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/optim/foreach_optimizer.h"

namespace kindling {

// The defaults of the paper; eps and weight decay are those of its experiments.
struct LambOptions {
  double lr = 1e-3;
  std::array<double, 2> betas{0.9, 0.999};
  double eps = 1e-6;
  double weight_decay = 0.01;
  bool maximize = false;

  static constexpr auto fields = kindling::fields(
      kindling::field("lr", &LambOptions::lr, {.doc = "learning rate", .min = 0}),
      kindling::field("betas", &LambOptions::betas,
                      {.doc = "decay of the running means of gradient and squared gradient",
                       .min = 0,
                       .max = 1,
                       .max_excluded = true}),
      kindling::field("eps", &LambOptions::eps, {.doc = "added to the denominator", .min = 0}),
      kindling::field("weight_decay", &LambOptions::weight_decay,
                      {.doc = "fraction of the weights that is added to the update", .min = 0}),
      kindling::field("maximize", &LambOptions::maximize, {.doc = "maximize instead of minimize"}));
};

// LAMB (You et al., 2020, algorithm 2, φ the identity): the step of Adam, r = m̂ / (√v̂ + eps) +
// weight_decay·p, scaled by the norm of the weights: p ← p − lr·‖p‖ / ‖r‖·r for each parameter; the ratio is
// 1 if one of the norms is 0. Its state: `step`, `exp_avg`, `exp_avg_sq`.
class KINDLING_API Lamb : public ForeachOptimizer {
 public:
  explicit Lamb(ParameterGroups parameters, LambOptions options = {});
  bool is_per_parameter() const override { return typeid(*this) == typeid(Lamb); }

 protected:
  void update_part(const Part& part) override;

 private:
  LambOptions options_;
  std::vector<at::Tensor>&exp_avgs_, &exp_avg_sqs_;
};

}  // namespace kindling
