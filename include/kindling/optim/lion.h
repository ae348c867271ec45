#pragma once

#include <array>
#include <typeinfo>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/optim/foreach_optimizer.h"

namespace kindling {

// The defaults of the authors' implementation.
struct LionOptions {
  double lr = 1e-4;
  std::array<double, 2> betas{0.9, 0.99};
  double weight_decay = 0;
  bool maximize = false;

  static constexpr auto fields = kindling::fields(
      kindling::field("lr", &LionOptions::lr,
                      {.doc = "learning rate; a third to a tenth of AdamW's is usual", .min = 0}),
      kindling::field("betas", &LionOptions::betas,
                      {.doc = "fraction of the running mean in the update, and decay of the running mean",
                       .min = 0,
                       .max = 1,
                       .max_excluded = true}),
      kindling::field("weight_decay", &LionOptions::weight_decay,
                      {.doc = "decay of the weights by lr · weight_decay", .min = 0}),
      kindling::field("maximize", &LionOptions::maximize, {.doc = "maximize instead of minimize"}));
};

// Lion (Chen et al., 2023, algorithm 2): p ← p·(1 − lr·weight_decay) − lr·sign(β₁·m + (1−β₁)·g), then
// m ← β₂·m + (1−β₂)·g. Its state: `exp_avg`.
class KINDLING_API Lion : public ForeachOptimizer {
 public:
  explicit Lion(ParameterGroups parameters, LionOptions options = {});
  bool is_per_parameter() const override { return typeid(*this) == typeid(Lion); }

 protected:
  void update_part(const Part& part) override;

 private:
  LionOptions options_;
  std::vector<at::Tensor>& exp_avgs_;
};

}  // namespace kindling
