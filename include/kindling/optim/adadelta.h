#pragma once

#include <typeinfo>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/optim/foreach_optimizer.h"

namespace kindling {

// Names and defaults as in torch.optim.Adadelta.
struct AdadeltaOptions {
  double lr = 1;
  double rho = 0.9;
  double eps = 1e-6;
  double weight_decay = 0;
  bool maximize = false;

  static constexpr auto fields = kindling::fields(
      kindling::field("lr", &AdadeltaOptions::lr, {.doc = "factor of the computed update", .min = 0}),
      kindling::field("rho", &AdadeltaOptions::rho,
                      {.doc = "decay of the running means", .min = 0, .max = 1}),
      kindling::field("eps", &AdadeltaOptions::eps,
                      {.doc = "added to the values under the square roots", .min = 0}),
      kindling::field("weight_decay", &AdadeltaOptions::weight_decay,
                      {.doc = "L2 penalty, added to the gradient", .min = 0}),
      kindling::field("maximize", &AdadeltaOptions::maximize, {.doc = "maximize instead of minimize"}));
};

// Adadelta (Zeiler, 2012, algorithm 1): s ← ρ·s + (1−ρ)·g², δ = g·√(a + eps) / √(s + eps),
// a ← ρ·a + (1−ρ)·δ², p ← p − lr·δ. Its state: `step`, `square_avg`, `acc_delta`.
class KINDLING_API Adadelta : public ForeachOptimizer {
 public:
  explicit Adadelta(ParameterGroups parameters, AdadeltaOptions options = {});
  TorchOptions python_options() const override;
  bool is_per_parameter() const override { return typeid(*this) == typeid(Adadelta); }

 protected:
  void update_part(const Part& part) override;

 private:
  AdadeltaOptions options_;
  std::vector<at::Tensor>&square_avgs_, &acc_deltas_;
};

}  // namespace kindling
