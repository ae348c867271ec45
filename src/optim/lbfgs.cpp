#include "kindling/optim/lbfgs.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <utility>

#include "kindling/base/error.h"
#include "kindling/optim/python_optimizer.h"
#include "tensors/real_numbers.h"

namespace kindling {
namespace {

// A step length along a direction, and the function there.
struct LinePoint {
  double t = 0, loss = 0;
  at::Tensor gradient{};
  double slope = 0;  // along the direction
};

struct LineSearchResult {
  LinePoint point;
  std::int64_t num_evaluations = 0;
};

constexpr double kC1 = 1e-4, kC2 = 0.9, kToleranceChange = 1e-9;

// Returns the minimum of the cubic through two points with their slopes, within the bounds.
double cubic_minimum(const LinePoint& a, const LinePoint& b, double low, double high) {
  const double d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t);
  const double square = d1 * d1 - a.slope * b.slope;
  if (!(square >= 0)) return (low + high) / 2;
  const double d2 = std::sqrt(square);
  const double minimum = a.t <= b.t
                             ? b.t - (b.t - a.t) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2))
                             : a.t - (a.t - b.t) * ((a.slope + d2 - d1) / (a.slope - b.slope + 2 * d2));
  return std::min(std::max(minimum, low), high);
}

class LineSearch {
 public:
  LineSearch(const std::function<LinePoint(double)>& evaluate, const LinePoint& start, double size,
             std::int64_t max_steps)
      : evaluate_(evaluate), start_(start), size_(size), max_steps_(max_steps) {}

  LineSearchResult run(double first) {
    bracket(first);
    if (!is_done_) zoom();
    return {low(), num_evaluations_};
  }

 private:
  LinePoint at(double t) {
    ++num_evaluations_;
    return evaluate_(t);
  }
  bool falls_too_little(const LinePoint& point) const {
    return point.loss > start_.loss + kC1 * point.t * start_.slope;
  }
  bool is_flat_enough(const LinePoint& point) const { return std::abs(point.slope) <= -kC2 * start_.slope; }
  const LinePoint& low() const { return ends_[low_]; }
  LinePoint& high() { return ends_[1 - low_]; }
  void order() { low_ = ends_[0].loss <= ends_[1].loss ? 0 : 1; }
  void set(const LinePoint& a, const LinePoint& b) {
    ends_ = {a, b};
    order();
  }

  // Continues until two points enclose one that meets the conditions, or a point meets them itself.
  void bracket(double first) {
    LinePoint previous = start_, point = at(first);
    for (; steps_ < max_steps_; ++steps_) {
      if (falls_too_little(point) || (steps_ > 1 && point.loss >= previous.loss)) return set(previous, point);
      if (is_flat_enough(point)) {
        is_done_ = true;
        return set(point, point);
      }
      if (point.slope >= 0) return set(previous, point);
      const double next =
          cubic_minimum(previous, point, point.t + 0.01 * (point.t - previous.t), point.t * 10);
      previous = std::exchange(point, at(next));
    }
    set(start_, point);
  }

  // Returns the next trial between the two: not too close to the same one twice.
  double next_trial() {
    const auto [left, right] = std::minmax({ends_[0].t, ends_[1].t});
    double t = cubic_minimum(ends_[0], ends_[1], left, right);
    const double margin = 0.1 * (right - left);
    const bool is_close = std::min(right - t, t - left) < margin;
    if (is_close && (was_close_ || t >= right || t <= left)) {
      t = std::abs(t - right) < std::abs(t - left) ? right - margin : left + margin;
      was_close_ = false;
    } else {
      was_close_ = is_close;
    }
    return t;
  }
  void zoom() {
    while (!is_done_ && steps_ < max_steps_ &&
           std::abs(ends_[1].t - ends_[0].t) * size_ >= kToleranceChange) {
      const LinePoint point = at(next_trial());
      ++steps_;
      if (falls_too_little(point) || point.loss >= low().loss) {
        high() = point;
        order();
        continue;
      }
      if (is_flat_enough(point))
        is_done_ = true;
      else if (point.slope * (high().t - low().t) >= 0)
        high() = low();
      ends_[low_] = point;
    }
  }

  const std::function<LinePoint(double)>& evaluate_;
  const LinePoint& start_;
  const double size_;
  const std::int64_t max_steps_;
  std::array<LinePoint, 2> ends_;  // of the bracket
  std::size_t low_ = 0;            // the better one
  std::int64_t steps_ = 0, num_evaluations_ = 0;
  bool is_done_ = false, was_close_ = false;
};

// Returns a point that meets the strong Wolfe conditions, c1 = 1e-4, c2 = 0.9 (Nocedal, Wright, 2006,
// algorithms 3.5 and 3.6, with cubic interpolation; follows torch.optim.lbfgs._strong_wolfe step by step).
// `start` has t = 0; `first` is the length tried first, `size` the largest number of the direction. Stops
// after about max_steps evaluations with the best point seen.
LineSearchResult strong_wolfe(const std::function<LinePoint(double t)>& evaluate, const LinePoint& start,
                              double first, double size, std::int64_t max_steps) {
  return LineSearch(evaluate, start, size, max_steps).run(first);
}

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

TorchOptions Lbfgs::python_options() const {
  TorchOptions options = python_options_of(options_);
  options["max_eval"] = options_.max_eval.value_or(options_.max_iter * 5 / 4);
  if (!options_.line_search_fn) options["line_search_fn"] = std::monostate();
  options["maximize"] = false;  // PyTorch 2.14 and newer read it
  return options;
}

at::Tensor Lbfgs::flat_gradient() const {
  std::vector<at::Tensor> pieces;
  for (const at::Tensor& parameter : parameters()) {
    const at::Tensor& gradient = parameter.grad();
    const at::Tensor dense = !gradient.defined()    ? at::zeros(parameter.sizes(), parameter.options())
                             : gradient.is_sparse() ? gradient.to_dense()
                                                    : gradient;
    pieces.push_back(as_real_pairs(dense.reshape(-1)).reshape(-1));
  }
  return at::cat(pieces);
}

void Lbfgs::move(const at::Tensor& direction, double length) {
  std::int64_t offset = 0;
  for (const at::Tensor& parameter : parameters()) {
    const at::Tensor numbers = as_real_pairs(parameter.detach());
    numbers.add_(direction.narrow(0, offset, numbers.numel()).view_as(numbers), length);
    offset += numbers.numel();
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

// Stores the curvature information of the last step.
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

// Does not change the parameters.
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

// Makes one iteration. Returns true if another one should follow.
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
    if (is_last) return false;  // the gradient is not needed any more
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

// Converts the state to its saved form: the lists become rows of one tensor each.
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
