#pragma once

#include <array>
#include <typeinfo>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/optim/foreach_optimizer.h"

namespace kindling {

// Names and defaults as in torch.optim.Adamax.
struct AdamaxOptions {
  double lr = 2e-3;
  std::array<double, 2> betas{0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  bool maximize = false;

  static constexpr auto fields = kindling::fields(
      kindling::field("lr", &AdamaxOptions::lr, {.doc = "learning rate", .min = 0}),
      kindling::field("betas", &AdamaxOptions::betas,
                      {.doc = "decay of the running mean of the gradient and of its largest absolute value",
                       .min = 0,
                       .max = 1,
                       .max_excluded = true}),
      kindling::field("eps", &AdamaxOptions::eps,
                      {.doc = "added to the absolute value of the gradient", .min = 0}),
      kindling::field("weight_decay", &AdamaxOptions::weight_decay,
                      {.doc = "L2 penalty, added to the gradient", .min = 0}),
      kindling::field("maximize", &AdamaxOptions::maximize, {.doc = "maximize instead of minimize"}));
};

// Adamax (Kingma, Ba, 2015, algorithm 2): m ← β₁·m + (1−β₁)·g, u ← max(β₂·u, |g| + eps),
// p ← p − lr / (1−β₁ᵗ)·m / u. Its state: `step`, `exp_avg`, `exp_inf`.
class KINDLING_API Adamax : public ForeachOptimizer {
 public:
  explicit Adamax(ParameterGroups parameters, AdamaxOptions options = {});
  TorchOptions python_options() const override;
  bool is_per_parameter() const override { return typeid(*this) == typeid(Adamax); }

 protected:
  void update_part(const Part& part) override;

 private:
  AdamaxOptions options_;
  std::vector<at::Tensor>&exp_avgs_, &exp_infs_;
};

}  // namespace kindling
