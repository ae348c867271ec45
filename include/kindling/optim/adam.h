#pragma once

#include <array>
#include <typeinfo>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/optim/optimizer.h"
#include "kindling/optim/step_counters.h"

namespace kindling {

// Names and defaults as in torch.optim.Adam.
struct AdamOptions {
  double lr = 1e-3;
  std::array<double, 2> betas{0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  bool amsgrad = false;
  bool maximize = false;
  bool decoupled_weight_decay = false;  // then it is AdamW

  static constexpr auto fields = kindling::fields(
      kindling::field("lr", &AdamOptions::lr, {.doc = "learning rate", .min = 0}),
      kindling::field("betas", &AdamOptions::betas,
                      {.doc = "decay of the running means of gradient and squared gradient",
                       .min = 0,
                       .max = 1,
                       .max_excluded = true}),
      kindling::field("eps", &AdamOptions::eps, {.doc = "added to the denominator", .min = 0}),
      kindling::field("weight_decay", &AdamOptions::weight_decay,
                      {.doc = "L2 penalty, added to the gradient", .min = 0}),
      kindling::field("amsgrad", &AdamOptions::amsgrad, {.doc = "use the largest second moment so far"}),
      kindling::field("maximize", &AdamOptions::maximize, {.doc = "maximize instead of minimize"}),
      kindling::field("decoupled_weight_decay", &AdamOptions::decoupled_weight_decay,
                      {.doc = "decay the weights directly, as AdamW does"}));
};

// Adam (Kingma, Ba, 2015, algorithm 1) in one fused operator for all parameters of a group. Its state:
// `exp_avg`, `exp_avg_sq`, `max_exp_avg_sq` (amsgrad), `step` (float32 scalar), from a parameter's first
// gradient on.
class KINDLING_API Adam : public Optimizer {
 public:
  explicit Adam(ParameterGroups parameters, AdamOptions options = {});
  bool takes_tensors() const override { return true; }
  bool is_per_parameter() const override { return typeid(*this) == typeid(Adam); }
  TorchOptions python_options() const override;

 protected:
  Adam(ParameterGroups parameters, AdamOptions options, const char* name);
  void update(const Update& update) override;
  void state_loaded() override { counters_.share_equal(); }

 private:
  AdamOptions options_;
  std::vector<at::Tensor>&exp_avgs_, &exp_avg_sqs_, &steps_;
  std::vector<at::Tensor>* max_exp_avg_sqs_;  // with amsgrad
  StepCounters counters_;
};

// Names and defaults as in torch.optim.AdamW.
struct AdamWOptions {
  double lr = 1e-3;
  std::array<double, 2> betas{0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 1e-2;
  bool amsgrad = false;
  bool maximize = false;

  static constexpr auto fields = kindling::fields(
      kindling::field("lr", &AdamWOptions::lr, {.doc = "learning rate", .min = 0}),
      kindling::field("betas", &AdamWOptions::betas,
                      {.doc = "decay of the running means of gradient and squared gradient",
                       .min = 0,
                       .max = 1,
                       .max_excluded = true}),
      kindling::field("eps", &AdamWOptions::eps, {.doc = "added to the denominator", .min = 0}),
      kindling::field("weight_decay", &AdamWOptions::weight_decay,
                      {.doc = "decay of the weights by lr · weight_decay", .min = 0}),
      kindling::field("amsgrad", &AdamWOptions::amsgrad, {.doc = "use the largest second moment so far"}),
      kindling::field("maximize", &AdamWOptions::maximize, {.doc = "maximize instead of minimize"}));
};

// Adam with decoupled weight decay (Loshchilov, Hutter, 2019, algorithm 2).
class KINDLING_API AdamW : public Adam {
 public:
  explicit AdamW(ParameterGroups parameters, AdamWOptions options = {});
  bool is_per_parameter() const override { return typeid(*this) == typeid(AdamW); }
};

}  // namespace kindling
