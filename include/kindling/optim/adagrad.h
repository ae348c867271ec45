#pragma once

#include <typeinfo>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/optim/foreach_optimizer.h"

namespace kindling {

// Names and defaults as in torch.optim.Adagrad.
struct AdagradOptions {
  double lr = 1e-2;
  double lr_decay = 0;
  double weight_decay = 0;
  double initial_accumulator_value = 0;
  double eps = 1e-10;
  bool maximize = false;

  static constexpr auto fields = kindling::fields(
      kindling::field("lr", &AdagradOptions::lr, {.doc = "learning rate", .min = 0}),
      kindling::field("lr_decay", &AdagradOptions::lr_decay,
                      {.doc = "divides the rate by 1 + (step - 1) · lr_decay", .min = 0}),
      kindling::field("weight_decay", &AdagradOptions::weight_decay,
                      {.doc = "L2 penalty, added to the gradient", .min = 0}),
      kindling::field("initial_accumulator_value", &AdagradOptions::initial_accumulator_value,
                      {.doc = "initial value of the sums of squared gradients", .min = 0}),
      kindling::field("eps", &AdagradOptions::eps, {.doc = "added to the denominator", .min = 0}),
      kindling::field("maximize", &AdagradOptions::maximize, {.doc = "maximize instead of minimize"}));
};

// Adagrad (Duchi, Hazan, Singer, 2011): s ← s + g², p ← p − lr / (1 + (t−1)·lr_decay)·g / (√s + eps). Its
// state: `step`, `sum`. Sparse gradients update the rows they contain; on a GPU they make the host wait, and
// they cannot be combined with weight decay (ConfigError).
class KINDLING_API Adagrad : public ForeachOptimizer {
 public:
  explicit Adagrad(ParameterGroups parameters, AdagradOptions options = {});
  TorchOptions python_options() const override;
  bool is_per_parameter() const override { return typeid(*this) == typeid(Adagrad); }

 protected:
  void update_part(const Part& part) override;

 private:
  void update_dense(const Part& part, const at::Tensor& factor);
  void update_sparse(const Part& part, std::size_t i, const at::Tensor& factor);

  AdagradOptions options_;
  std::vector<at::Tensor>& sums_;
};

}  // namespace kindling
