#include "kindling/optim/lbfgs.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "kindling/base/error.h"
#include "optim/strong_wolfe.h"

namespace kindling {
namespace {

double number(const at::Tensor& scalar) { return scalar.item().toDouble(); }
double largest(const at::Tensor& values) { return number(values.abs().max()); }

}  // namespace

Lbfgs::Lbfgs(ParameterGroups parameters, LbfgsOptions options)
    : Optimizer(std::move(parameters), options.lr), options_(options) {
  validate(options_, "lbfgs");
  if (groups().size() != 1 || *groups()[0].weight_decay != 0)
    throw ConfigError({.place = "lbfgs",
                       .found = groups().size() != 1
                                    ? std::to_string(groups().size()) + " groups of parameters"
                                    : "a group with weight decay",
                       .wanted = "all parameters as one group, without weight decay",
                       .remedy = "add a penalty to the loss instead"});
  for (const char* name : {"d", "t", "old_dirs", "old_stps", "ro", "H_diag", "prev_flat_grad", "prev_loss",
                           "n_iter", "func_evals"})
    shown_.emplace_back(name, &add_state(name));
}

void Lbfgs::update(const Update&) {
  throw ConfigError({.place = "lbfgs",
                     .found = "a step without a closure",
                     .wanted = "step_with(closure), which evaluates the loss several times"});
}

at::Tensor Lbfgs::flat_gradient() const {
  std::vector<at::Tensor> pieces;
  for (const at::Tensor& parameter : parameters()) {
    const at::Tensor& gradient = parameter.grad();
    pieces.push_back(!gradient.defined()
                         ? at::zeros({parameter.numel()}, parameter.options())
                         : (gradient.is_sparse() ? gradient.to_dense() : gradient).reshape(-1));
  }
  return at::cat(pieces);
}

void Lbfgs::move(const at::Tensor& direction, double length) {
  std::int64_t offset = 0;
  for (at::Tensor parameter : parameters()) {
    parameter.add_(direction.narrow(0, offset, parameter.numel()).view_as(parameter), length);
    offset += parameter.numel();
  }
}

Lbfgs::Point Lbfgs::evaluate(const Closure& closure) {
  ++num_evaluations_;
  at::Tensor loss;
  {
    const at::AutoGradMode with_gradients(true);
    loss = closure();
  }
  return {number(loss), flat_gradient()};
}

// What the last move tells of the curvature.
void Lbfgs::remember(const at::Tensor& gradient) {
  const at::Tensor y = gradient - previous_gradient_, s = direction_ * length_, ys = y.dot(s);
  if (number(ys) <= 1e-10) return;
  if (static_cast<std::int64_t>(old_dirs_.size()) == options_.history_size)
    for (auto* list : {&old_dirs_, &old_stps_, &ro_}) list->erase(list->begin());
  old_dirs_.push_back(y);
  old_stps_.push_back(s);
  ro_.push_back(ys.reciprocal());
  h_diag_ = ys / y.dot(y);
}

// The approximate inverse Hessian times the gradient, negated: Nocedal's two loops.
at::Tensor Lbfgs::new_direction(const at::Tensor& gradient) const {
  std::vector<at::Tensor> al(old_dirs_.size());
  at::Tensor q = gradient.neg();
  for (std::size_t i = old_dirs_.size(); i-- > 0;) {
    al[i] = old_stps_[i].dot(q) * ro_[i];
    q.addcmul_(old_dirs_[i], al[i], -1);
  }
  at::Tensor r = q * h_diag_;
  for (std::size_t i = 0; i < old_dirs_.size(); ++i)
    r.addcmul_(old_stps_[i], al[i] - old_dirs_[i].dot(r) * ro_[i]);
  return r;
}

// Leaves the parameters where they were.
Lbfgs::Point Lbfgs::search(const Closure& closure, const Point& from, double slope, std::int64_t max_eval,
                           std::int64_t& evaluations) {
  std::vector<at::Tensor> before;
  for (const at::Tensor& parameter : parameters()) before.push_back(parameter.detach().clone());
  const auto evaluate_at = [&](double t) {
    move(direction_, t);
    const Point point = evaluate(closure);
    for (std::size_t i = 0; i < before.size(); ++i) parameters()[i].detach().copy_(before[i]);
    return LinePoint{t, point.loss, point.gradient, number(point.gradient.dot(direction_))};
  };
  const LineSearchResult found = strong_wolfe(evaluate_at, {0, from.loss, from.gradient, slope}, length_,
                                              largest(direction_), max_eval - evaluations);
  evaluations += found.num_evaluations;
  length_ = found.point.t;
  return {found.point.loss, found.point.gradient};
}

// One iteration; whether there is to be another one.
bool Lbfgs::iterate(const Closure& closure, Point& at, bool is_last, std::int64_t max_eval,
                    std::int64_t& evaluations) {
  const bool is_first = ++num_iterations_ == 1;
  if (is_first) {
    h_diag_ = at::ones({}, at.gradient.options());
    direction_ = at.gradient.neg();
  } else {
    remember(at.gradient);
    direction_ = new_direction(at.gradient);
  }
  previous_gradient_ = at.gradient.clone();
  previous_loss_ = at.loss;
  length_ = is_first ? std::min(1.0, 1 / number(at.gradient.abs().sum())) * lr() : lr();
  const double slope = number(at.gradient.dot(direction_));
  if (slope > -options_.tolerance_change) return false;

  if (options_.line_search_fn) {
    at = search(closure, at, slope, max_eval, evaluations);
    move(direction_, length_);
  } else {
    move(direction_, length_);
    if (is_last) return false;  // the gradient would be used no more
    at = evaluate(closure);
    ++evaluations;
  }
  return !is_last && evaluations < max_eval && !(largest(at.gradient) <= options_.tolerance_grad) &&
         !(largest(direction_ * length_) <= options_.tolerance_change) &&
         !(std::abs(at.loss - previous_loss_) < options_.tolerance_change);
}

at::Tensor Lbfgs::step_with(const Closure& closure) {
  const at::NoGradGuard no_grad;
  ++num_evaluations_;
  at::Tensor first_loss;
  {
    const at::AutoGradMode with_gradients(true);
    first_loss = closure();
  }
  Point at{number(first_loss), flat_gradient()};
  const std::int64_t max_eval = options_.max_eval.value_or(options_.max_iter * 5 / 4);
  std::int64_t evaluations = 1;
  if (!(largest(at.gradient) <= options_.tolerance_grad))
    for (std::int64_t i = 1; i <= options_.max_iter; ++i)
      if (!iterate(closure, at, i == options_.max_iter, max_eval, evaluations)) break;
  show_state();
  return first_loss;
}

// Puts it where it is saved from: the lists become rows of one tensor each.
void Lbfgs::show_state() {
  if (!direction_.defined()) return;
  const auto scalar = [&](double value) {
    return at::full({}, value, direction_.options().dtype(at::kDouble));
  };
  const auto rows = [](std::vector<at::Tensor>& list) {
    if (list.empty()) return at::Tensor();
    const at::Tensor all = at::stack(list);
    list = all.unbind();
    return all;
  };
  const at::Tensor values[] = {direction_,
                               scalar(length_),
                               rows(old_dirs_),
                               rows(old_stps_),
                               rows(ro_),
                               h_diag_,
                               previous_gradient_,
                               scalar(previous_loss_),
                               scalar(static_cast<double>(num_iterations_)),
                               scalar(static_cast<double>(num_evaluations_))};
  for (std::size_t i = 0; i < shown_.size(); ++i) shown_[i].second->front() = values[i];
}

void Lbfgs::state_loaded() {
  const auto shown = [&](std::size_t i) -> const at::Tensor& { return shown_[i].second->front(); };
  const auto rows = [&](std::size_t i) {
    return shown(i).defined() ? shown(i).unbind() : std::vector<at::Tensor>();
  };
  const auto value = [&](std::size_t i) { return shown(i).defined() ? number(shown(i)) : 0.0; };
  direction_ = shown(0);
  length_ = value(1);
  old_dirs_ = rows(2), old_stps_ = rows(3), ro_ = rows(4);
  h_diag_ = shown(5);
  previous_gradient_ = shown(6);
  previous_loss_ = value(7);
  num_iterations_ = static_cast<std::int64_t>(value(8));
  num_evaluations_ = static_cast<std::int64_t>(value(9));
}

}  // namespace kindling
