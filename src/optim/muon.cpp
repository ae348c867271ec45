#include "kindling/optim/muon.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <cmath>

#include "kindling/base/error.h"
#include "kindling/optim/adam.h"
#include "kindling/optim/python_optimizer.h"
#include "optim/state_starts.h"

namespace kindling {
namespace {

bool is_matrix(const at::Tensor& parameter) { return parameter.dim() == 2; }

// State of the parameters that are matrices, or of the others.
auto zeros_where(bool matrices) {
  return [matrices](const at::Tensor& parameter) {
    return is_matrix(parameter) == matrices ? at::zeros_like(parameter) : at::Tensor();
  };
}

double adjustment(const std::string& kind, const at::Tensor& matrix) {
  const auto rows = static_cast<double>(matrix.size(0)), columns = static_cast<double>(matrix.size(1));
  return kind == "original" ? std::sqrt(std::max(1.0, rows / columns))
                            : 0.2 * std::sqrt(std::max(rows, columns));
}

}  // namespace

Muon::Muon(ParameterGroups parameters, MuonOptions options)
    : ForeachOptimizer(std::move(parameters), options.lr, options.weight_decay,
                       {.weight_decay = WeightDecay::by_rule, .counts_steps = false}),
      options_(options),
      momentum_buffers_(add_state("momentum_buffer", zeros_where(true))),
      exp_avgs_(add_state("exp_avg", zeros_where(false))),
      exp_avg_sqs_(add_state("exp_avg_sq", zeros_where(false))),
      steps_(add_state("step",
                       [start = scalar_start(0)](const at::Tensor& parameter) {
                         return is_matrix(parameter) ? at::Tensor() : start(parameter);
                       })),
      counters_({&steps_}) {
  validate(options_, "muon");
  add_momentum(options_.momentum);
  if (options_.ns_coefficients.size() != 3)
    throw ConfigError(
        {.place = "muon",
         .found = "ns_coefficients has " + std::to_string(options_.ns_coefficients.size()) + " numbers",
         .wanted = "3"});
  if (options_.adamw_lr && options_.lr == 0)
    throw ConfigError({.place = "muon",
                       .found = "lr is 0, but adamw_lr is set",
                       .wanted = "lr > 0, which adamw_lr is relative to"});
  for (std::size_t i = 0; i < names().size(); ++i)
    if (this->parameters()[i].is_complex())
      throw ConfigError({.place = "muon",
                         .found = "the parameter '" + names()[i] + "' is complex",
                         .wanted = "real parameters, as in PyTorch's Muon",
                         .remedy = "use another optimizer, such as adamw"});
  std::string others;
  for (std::size_t i = 0; i < names().size(); ++i)
    if (!is_matrix(this->parameters()[i])) others += (others.empty() ? "'" : ", '") + names()[i] + "'";
  if (!others.empty() && !options_.adamw_lr)
    throw ConfigError({.place = "muon",
                       .found = "parameters that are not matrices: " + others,
                       .wanted = "parameters with two dimensions",
                       .remedy = "set adamw_lr, such as 3e-4, to let AdamW update them, or use a separate "
                                 "optimizer for them"});
}

// Python's class has matrices only. Its default of adjust_lr_fn, None, means "original".
TorchOptions Muon::python_options() const {
  if (!std::ranges::all_of(parameters(), is_matrix)) return {};
  TorchOptions options = python_options_of(options_);
  options.erase("adamw_lr");
  if (options_.adjust_lr_fn == "original") options["adjust_lr_fn"] = std::monostate();
  return options;
}

void Muon::update_part(const Part& part) {
  Part matrices = part, others = part;
  for (Part* half : {&matrices, &others})
    half->places.clear(), half->parameters.clear(), half->gradients.clear();
  for (std::size_t i = 0; i < part.places.size(); ++i) {
    Part& half = is_matrix(part.parameters[i]) ? matrices : others;
    half.places.push_back(part.places[i]);
    half.parameters.push_back(part.parameters[i]);
    half.gradients.push_back(part.gradients[i]);
  }
  if (!matrices.places.empty()) update_matrices(matrices);
  if (!others.places.empty()) update_others(others);
}

void Muon::update_matrices(const Part& part) {
  const auto buffers = part.of(momentum_buffers_);
  at::_foreach_lerp_(buffers, part.gradients, 1 - momentum());
  std::vector<at::Tensor> updates =
      options_.nesterov ? at::_foreach_lerp(part.gradients, buffers, momentum()) : buffers;
  for (at::Tensor& update : updates)
    update = orthogonalized(update).to(part.parameters.front().scalar_type());
  for (std::size_t i = 0; i < updates.size(); ++i)
    updates[i].mul_(adjustment(options_.adjust_lr_fn, updates[i]));
  if (part.weight_decay != 0) part.decay();
  part.descend(updates);
}

at::Tensor Muon::orthogonalized(const at::Tensor& matrix) const {
  const auto& c = options_.ns_coefficients;
  const bool is_tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = matrix.to(at::kBFloat16);
  if (is_tall) x = x.t();
  x = x / x.norm().clamp_min(options_.eps);
  for (std::int64_t step = 0; step < options_.ns_steps; ++step) {
    const at::Tensor gram = at::mm(x, x.t());
    x = at::addmm(x, at::addmm(gram, gram, gram, c[1], c[2]), x, c[0]);
  }
  return is_tall ? x.t() : x;
}

void Muon::update_others(const Part& part) {
  counters_.advance(part.places);
  const auto exp_avgs = part.of(exp_avgs_), exp_avg_sqs = part.of(exp_avg_sqs_), steps = part.of(steps_);
  const AdamWOptions defaults;
  const double factor = *options_.adamw_lr / options_.lr;
  const auto apply = [&](const auto& lr) {
    at::_fused_adamw_(part.parameters, part.gradients, exp_avgs, exp_avg_sqs, {}, steps, lr,
                      defaults.betas[0], defaults.betas[1], part.weight_decay, defaults.eps,
                      /*amsgrad=*/false, /*maximize=*/false);
  };
  if (part.lr.tensor.defined())
    apply(part.lr.tensor * factor);
  else
    apply(part.lr.number * factor);
}

}  // namespace kindling
