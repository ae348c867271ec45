#pragma once

#include <array>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/optim/optimizer.h"

namespace kindling {

// The names and defaults of torch.optim.Adam.
struct AdamOptions {
  double lr = 1e-3;
  std::array<double, 2> betas{0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  bool amsgrad = false;

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
      kindling::field("amsgrad", &AdamOptions::amsgrad, {.doc = "keep the largest second moment"}));
};

// Adam (Kingma, Ba, 2015, algorithm 1) in one fused operator for all parameters.
class KINDLING_API Adam : public Optimizer {
 public:
  explicit Adam(std::vector<at::Tensor> parameters, AdamOptions options = {});

 protected:
  enum class Decay { coupled, decoupled };
  Adam(std::vector<at::Tensor> parameters, AdamOptions options, Decay decay);
  void update(std::span<const std::size_t> active, at::TensorList gradients) override;

 private:
  // The lists of the fused operator, one entry per parameter. Parameters that have always been updated
  // together share one step counter (a float scalar on the device).
  struct State {
    std::vector<at::Tensor> parameters, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps;
    State part(std::span<const std::size_t> active) const;
  };
  void make_state();
  void advance_steps(std::span<const std::size_t> active);
  void apply(const State& state, at::TensorList gradients);

  AdamOptions options_;
  Decay decay_;
  State state_;
};

// The names and defaults of torch.optim.AdamW.
struct AdamWOptions {
  double lr = 1e-3;
  std::array<double, 2> betas{0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 1e-2;
  bool amsgrad = false;

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
      kindling::field("amsgrad", &AdamWOptions::amsgrad, {.doc = "keep the largest second moment"}));
};

// Adam with decoupled weight decay (Loshchilov, Hutter, 2019, algorithm 2).
class KINDLING_API AdamW : public Adam {
 public:
  explicit AdamW(std::vector<at::Tensor> parameters, AdamWOptions options = {});
};

}  // namespace kindling
