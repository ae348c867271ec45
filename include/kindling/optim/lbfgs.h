#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/optim/optimizer.h"

namespace kindling {

// Names and defaults as in torch.optim.LBFGS.
struct LbfgsOptions {
  double lr = 1;
  std::int64_t max_iter = 20;
  std::optional<std::int64_t> max_eval{};
  double tolerance_grad = 1e-7;
  double tolerance_change = 1e-9;
  std::int64_t history_size = 100;
  std::optional<std::string> line_search_fn{};

  static constexpr auto fields = kindling::fields(
      kindling::field("lr", &LbfgsOptions::lr,
                      {.doc = "step length, or initial step length of the line search", .min = 0}),
      kindling::field("max_iter", &LbfgsOptions::max_iter,
                      {.doc = "largest number of iterations per step", .min = 1}),
      kindling::field("max_eval", &LbfgsOptions::max_eval,
                      {.doc = "largest number of loss evaluations per step; absent: 5/4 of max_iter",
                       .min = 1,
                       .example = "25"}),
      kindling::field("tolerance_grad", &LbfgsOptions::tolerance_grad,
                      {.doc = "a step ends when no gradient is larger", .min = 0}),
      kindling::field("tolerance_change", &LbfgsOptions::tolerance_change,
                      {.doc = "a step ends when loss and weights change less", .min = 0}),
      kindling::field("history_size", &LbfgsOptions::history_size,
                      {.doc = "number of previous steps that are kept", .min = 1}),
      kindling::field(
          "line_search_fn", &LbfgsOptions::line_search_fn,
          {.doc = "line search; absent: none, the step length is lr", .choices = "strong_wolfe"}));
};

// L-BFGS (Nocedal, 1980) as implemented in torch.optim.LBFGS after minFunc (Schmidt, 2005), for whole data
// sets or large batches: step_with() evaluates the loss many times. Unlike all other rules it reads values on
// the host in every iteration, and it cannot skip a step by found_inf. All parameters form one group, and
// there is no weight decay (ConfigError). Its state has the first parameter's name, as in Python: `d`, `t`,
// `old_dirs`, `old_stps` [history, numbers of all parameters], `ro`, `H_diag`, `prev_flat_grad`, `prev_loss`,
// `n_iter`, `func_evals`.
class KINDLING_API Lbfgs : public Optimizer {
 public:
  explicit Lbfgs(ParameterGroups parameters, LbfgsOptions options = {});
  bool needs_closure() const override { return true; }
  at::Tensor step_with(const Closure& closure) override;
  TorchOptions python_options() const override;

 protected:
  void update(const Update& update) override;  // throws ConfigError: use step_with()
  bool has_own_shapes() const override { return true; }
  void state_loaded() override;

 private:
  struct Point {
    double loss;
    at::Tensor gradient;  // of all parameters, concatenated
  };
  at::Tensor flat_gradient() const;
  void move(const at::Tensor& direction, double length);
  Point evaluate(const Closure& closure);
  void remember(const at::Tensor& gradient);
  at::Tensor new_direction(const at::Tensor& gradient) const;
  Point search(const Closure& closure, const Point& from, double slope, std::int64_t max_eval,
               std::int64_t& evaluations);
  bool iterate(const Closure& closure, Point& at, bool is_last, std::int64_t max_eval,
               std::int64_t& evaluations);
  void show_state();

  LbfgsOptions options_;
  at::Tensor direction_, previous_gradient_, h_diag_;
  std::vector<at::Tensor> old_dirs_, old_stps_, ro_;
  double length_ = 0, previous_loss_ = 0;
  std::int64_t num_iterations_ = 0, num_evaluations_ = 0;
  std::vector<std::pair<const char*, std::vector<at::Tensor>*>> shown_;
};

}  // namespace kindling
