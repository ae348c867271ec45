#include "kindling/nn/module.h"

#include <algorithm>
#include <map>
#include <utility>

#include "kindling/base/error.h"
#include "kindling/base/name_pattern.h"
#include "kindling/base/suggest.h"
#include "kindling/nn/evaluation_guard.h"
#include "kindling/tensors/lazy.h"
#include "metrics/global_means.h"
#include "tensors/module_tree.h"

namespace kindling {
namespace {

[[noreturn]] void refuse(const torch::nn::Module& module, const char* method, const char* remedy) {
  throw Error(
      {.place = module.name() + "::" + method, .found = "the model does not define it", .remedy = remedy});
}

bool is_within(const std::string& inner, const std::string& outer) {
  return outer.empty() || inner == outer || inner.starts_with(outer + ".");
}

std::string join(const std::string& module, const std::string& name) {
  return module.empty() ? name : module + "." + name;
}

// Of a layer without those within it, those that a lazy one is to have included.
std::vector<std::string> own_parameters(torch::nn::Module& layer) {
  if (const auto* lazy = dynamic_cast<LazyLayer*>(&layer)) return lazy->parameter_names();
  std::vector<std::string> names;
  for (const auto& item : layer.named_parameters(/*recurse=*/false)) names.push_back(item.key());
  return names;
}

// What a layer can be frozen by.
std::vector<std::string> own_names(torch::nn::Module& layer) {
  std::vector<std::string> names = own_parameters(layer);
  if (names.empty())
    for (const auto& item : layer.named_buffers(/*recurse=*/false)) names.push_back(item.key());
  return names;
}

void set_learning(const at::Tensor& parameter, bool is_learning) {
  parameter.requires_grad_(is_learning);
  if (!is_learning) parameter.mutable_grad().reset();  // or the optimizer would use it once more
}

void set_member(std::set<std::string>& names, const std::string& name, bool is_member) {
  if (is_member)
    names.insert(name);
  else
    names.erase(name);
}

// All that can be frozen, by whether a pattern fits it.
std::map<std::string, bool> fitting_names(torch::nn::Module& model, const std::vector<std::string>& patterns,
                                          const std::string& caller) {
  std::vector<std::string> names;
  for_each_module(model, [&](const std::string& layer_name, torch::nn::Module& layer) {
    for (const std::string& name : own_names(layer)) names.push_back(join(layer_name, name));
  });
  for (const std::string& pattern : patterns) require_match(names, pattern, model.name() + "::" + caller);
  std::map<std::string, bool> fits;
  for (const std::string& name : names)
    fits[name] =
        std::ranges::any_of(patterns, [&](const std::string& pattern) { return matches(name, pattern); });
  return fits;
}

}  // namespace

Module::~Module() = default;

at::Tensor Module::forward(const at::Tensor&) {
  refuse(*this, "forward", "override forward() for one input or forward_inputs() for several");
}

at::Tensor Module::forward_inputs(const Batch& batch) { return forward(batch[0]); }

at::Tensor Module::loss(const at::Tensor&, const at::Tensor&) {
  refuse(*this, "loss", "override loss() or the steps that call it");
}

WeightedLoss Module::weighted_loss(const at::Tensor& outputs, const at::Tensor& labels) {
  const at::Tensor of_step = std::exchange(facts_.weight, {});
  const bool was_weighing = std::exchange(is_weighing_, true);
  WeightedLoss result{.loss = {}};
  try {
    result.loss = loss(outputs, labels);
  } catch (...) {
    is_weighing_ = was_weighing;
    throw;
  }
  is_weighing_ = was_weighing;
  result.weight = std::exchange(facts_.weight, of_step);
  return result;
}

at::Tensor Module::weighted(const WeightedLoss& loss) {
  if (is_weighing_ || view_.log() != nullptr) facts_.weight = loss.weight;
  return loss.loss;
}

at::Tensor Module::take_loss_weight() { return std::exchange(facts_, {}).weight; }

void Module::keep_num_labels(const at::Tensor& labels, const at::Tensor& number) {
  if (view_.log() == nullptr) return;
  facts_.labels = labels;
  facts_.num_labels = number;
}

void Module::keep_loss(const at::Tensor& outputs, const at::Tensor& loss) {
  if (view_.log() == nullptr) return;
  facts_.outputs_of_loss = outputs;
  facts_.loss = loss;
}

at::Tensor Module::training_step(const Batch& batch) {
  const at::Tensor outputs = forward_inputs(batch);
  const at::Tensor to_minimise = loss(outputs, batch.labels());
  facts_.shows_nan = to_minimise.is_same(facts_.loss) && view_.checks_losses();
  measure(Stage::train, outputs, batch.labels());
  return to_minimise;
}

void Module::validation_step(const Batch& batch) {
  const at::Tensor outputs = forward_inputs(batch);
  plot("loss", weighted_loss(outputs, batch.labels()), /*train=*/false);
  measure(Stage::val, outputs, batch.labels());
}

void Module::test_step(const Batch& batch) {
  const at::Tensor outputs = forward_inputs(batch);
  log("test_loss", weighted_loss(outputs, batch.labels()));
  measure(Stage::test, outputs, batch.labels());
}

at::Tensor Module::predict_step(const Batch& batch) { return forward_inputs(batch); }

std::unique_ptr<Optimizer> Module::configure_optimizers() { return nullptr; }

void Module::log(std::string_view name, const at::Tensor& value, ValueOptions options) const {
  if (EpochLog* const to = view_.log()) to->mark(to->column(name), value, options);
}

void Module::log(std::string_view name, double value, ValueOptions options) const {
  if (EpochLog* const to = view_.log()) to->mark(to->column(name), value, options);
}

void Module::log(std::string_view name, const WeightedLoss& value) const {
  if (EpochLog* const to = view_.log()) to->mark(to->column(name), value);
}

void Module::add_metric(std::string name, std::shared_ptr<const Metric> metric) {
  std::erase_if(metrics_, [&](const NamedMetric& known) { return known.name == name; });
  metrics_.push_back({std::move(metric), name, {"train_" + name, "val_" + name, "test_" + name}});
  plotted_.push_back("val_" + name);
  changed();
}

std::shared_ptr<const Metric> Module::metric_of(std::string_view logged_name) const {
  for (const NamedMetric& known : metrics_)
    if (std::ranges::find(known.logged_as, logged_name) != known.logged_as.end()) return known.metric;
  return nullptr;
}

void Module::measure(Stage stage, const at::Tensor& outputs, const at::Tensor& labels,
                     const at::Tensor& weights) {
  for (const NamedMetric& known : metrics_) measure(stage, known, outputs, labels, weights);
}

void Module::measure(Stage stage, std::string_view metric, const at::Tensor& outputs,
                     const at::Tensor& labels, const at::Tensor& weights) {
  const auto known = std::ranges::find(metrics_, metric, &NamedMetric::name);
  if (known != metrics_.end()) return measure(stage, *known, outputs, labels, weights);
  std::vector<std::string> names;
  for (const NamedMetric& each : metrics_) names.push_back(each.name);
  const std::string guess = nearest(metric, names);
  throw ConfigError({.place = name() + "::measure",
                     .found = "the model has no metric '" + std::string(metric) + "'",
                     .wanted = names.empty() ? "" : "one of " + list_names(names),
                     .remedy = guess.empty() ? "add it with add_metric(), or list it in model.metrics"
                                             : "did you mean '" + guess + "'?"});
}

void Module::measure(Stage stage, const NamedMetric& by, const at::Tensor& outputs, const at::Tensor& labels,
                     const at::Tensor& weights) {
  if (stage == Stage::predict)
    throw ConfigError({.place = name() + "::measure",
                       .found = "the stage is predict, which has no metrics",
                       .wanted = "train, val or test"});
  EpochLog* const to = view_.log();
  if (to == nullptr) return;
  const at::NoGradGuard no_grad;
  const bool shows_nan = facts_.shows_nan && outputs.is_same(facts_.outputs_of_loss);
  if (!shows_nan) count_nan_rows(stage, *by.metric, outputs, labels);
  const std::string& name = by.logged_as[static_cast<std::size_t>(stage)];
  if (weights.defined())
    return to->mark(name, by.metric, by.metric->update_weighted(outputs, labels, weights));
  const at::Tensor part =
      shows_nan ? by.metric->update_without_nan(outputs, labels) : by.metric->update(outputs, labels);
  const at::Tensor known = labels.is_same(facts_.labels) ? facts_.num_labels : at::Tensor();
  if (part.numel() == 1)
    if (const at::Tensor counted = by.metric->num_counted(outputs, labels, known); counted.defined())
      return to->mark(name, by.metric, part, counted);
  const auto answers = part.numel() == 1 ? by.metric->num_answers(outputs, labels) : std::nullopt;
  to->mark(name, by.metric, part, {.weight = answers});
}

// Once per step for all metrics of the same outputs.
void Module::count_nan_rows(Stage stage, const Metric& metric, const at::Tensor& outputs,
                            const at::Tensor& labels) {
  if (outputs.is_same(facts_.counted_outputs)) return;
  at::Tensor number = metric.num_without_class(outputs, labels);
  if (!number.defined()) return;
  facts_.counted_outputs = outputs;
  EpochLog& to = *view_.log();
  const std::size_t column =
      to.column(kNanRowsColumns[static_cast<std::size_t>(stage)], EpochLog::Kind::internal);
  if (const at::Tensor of_others = to.marked_tensor(column); of_others.defined())
    number = number.add(of_others);
  to.mark(column, number);
}

void Module::plot(std::string_view key, const at::Tensor& value, bool train) {
  log(plotted_name(key, train), value);
}

void Module::plot(std::string_view key, const WeightedLoss& value, bool train) {
  log(plotted_name(key, train), value);
}

std::string Module::plotted_name(std::string_view key, bool train) {
  std::string name = (train ? "train_" : "val_") + std::string(key);
  if (!is_plotted(name)) plotted_.push_back(name);
  return name;
}

bool Module::is_plotted(std::string_view name) const {
  return std::ranges::find(plotted_, name) != plotted_.end();
}

ProgressBoard& Module::board() {
  if (!board_) board_ = std::make_shared<ProgressBoard>(ProgressBoardOptions{.xlabel = "epoch"});
  return *board_;
}

void Module::apply_init(const Batch& inputs, const std::function<void(torch::nn::Module&)>& init) {
  {
    const EvaluationGuard evaluation(*this);
    forward_inputs(inputs);
  }
  const at::NoGradGuard no_grad;
  if (init) apply(init);
}

std::string Module::name_of(const torch::nn::Module& layer) const {
  if (&layer == this) return "";
  for (const auto& item : named_modules("", /*include_self=*/false))
    if (item.value().get() == &layer) return item.key();
  throw Error({.place = name() + "::freeze",
               .found = "the layer (" + layer.name() + ") is not a part of the model",
               .remedy = "register it with register_module()"});
}

std::vector<std::string> Module::parameter_names() {
  std::vector<std::string> names;
  for_each_module(*this, [&](const std::string& layer_name, torch::nn::Module& layer) {
    for (const std::string& name : own_parameters(layer)) names.push_back(join(layer_name, name));
  });
  return names;
}

void Module::freeze(torch::nn::Module& layer) {
  const std::string part = name_of(layer);
  for (const auto& item : named_modules("", /*include_self=*/false))
    if (is_within(item.key(), part)) frozen_.insert(item.key());
  frozen_.insert(part);
  for (const at::Tensor& parameter : layer.parameters()) set_learning(parameter, /*is_learning=*/false);
  for_each_module(layer, [](const std::string&, torch::nn::Module& inner) {
    if (auto* lazy = dynamic_cast<LazyLayer*>(&inner))
      for (const std::string& parameter : lazy->parameter_names()) lazy->frozen.insert(parameter);
  });
  layer.eval();
}

void Module::freeze_by_name(const std::vector<std::string>& patterns) {
  set_frozen(patterns, /*frozen=*/true, "freeze_by_name");
}

void Module::unfreeze_by_name(const std::vector<std::string>& patterns) {
  set_frozen(patterns, /*frozen=*/false, "unfreeze_by_name");
}

void Module::set_frozen(const std::vector<std::string>& patterns, bool frozen, const char* caller) {
  const auto fits = fitting_names(*this, patterns, caller);
  for_each_module(*this, [&](const std::string& layer_name, torch::nn::Module& layer) {
    std::size_t num_names = 0, num_fitting = 0;
    for (const auto& [name, is_fitting] : fits) {
      if (!is_within(name, layer_name)) continue;
      ++num_names;
      num_fitting += is_fitting;
    }
    if (num_names > 0 && num_fitting == num_names) frozen ? freeze(layer) : unfreeze(layer);
    for (const std::string& name : own_names(layer)) {
      if (!fits.at(join(layer_name, name))) continue;
      if (auto* lazy = dynamic_cast<LazyLayer*>(&layer)) set_member(lazy->frozen, name, frozen);
      const auto parameters = layer.named_parameters(/*recurse=*/false);
      if (const at::Tensor* parameter = parameters.find(name)) set_learning(*parameter, !frozen);
    }
  });
}

void Module::unfreeze(torch::nn::Module& layer) {
  const std::string part = name_of(layer);
  std::erase_if(frozen_,
                [&](const std::string& name) { return is_within(name, part) || is_within(part, name); });
  for (const at::Tensor& parameter : layer.parameters()) set_learning(parameter, /*is_learning=*/true);
  for_each_module(layer, [](const std::string&, torch::nn::Module& inner) {
    if (auto* lazy = dynamic_cast<LazyLayer*>(&inner)) lazy->frozen.clear();
  });
  layer.train(is_training());
}

void Module::train(bool on) {
  torch::nn::Module::train(on && !frozen_.contains(""));
  if (!on || frozen_.empty()) return;
  for (const auto& item : named_modules("", /*include_self=*/false))
    if (frozen_.contains(item.key())) item.value()->eval();
}

}  // namespace kindling
