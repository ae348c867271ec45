#include "kindling/nn/module.h"

#include <algorithm>

#include "kindling/base/error.h"
#include "kindling/nn/evaluation_guard.h"
#include "tensors/state_fit.h"

namespace kindling {
namespace {

[[noreturn]] void refuse(const torch::nn::Module& module, const char* method, const char* remedy) {
  throw Error(
      {.place = module.name() + "::" + method, .found = "the model does not define it", .remedy = remedy});
}

bool is_within(const std::string& inner, const std::string& outer) {
  return outer.empty() || inner == outer || inner.starts_with(outer + ".");
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

at::Tensor Module::training_step(const Batch& batch) {
  const at::Tensor outputs = forward_inputs(batch);
  const at::Tensor to_minimise = loss(outputs, batch.labels());
  measure(Stage::train, outputs, batch.labels());
  return to_minimise;
}

void Module::validation_step(const Batch& batch) {
  const at::Tensor outputs = forward_inputs(batch);
  plot("loss", loss(outputs, batch.labels()), /*train=*/false);
  measure(Stage::val, outputs, batch.labels());
}

void Module::test_step(const Batch& batch) {
  const at::Tensor outputs = forward_inputs(batch);
  log("test_loss", loss(outputs, batch.labels()));
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

void Module::add_metric(std::string name, std::shared_ptr<const Metric> metric) {
  std::erase_if(metrics_, [&](const NamedMetric& known) { return known.name == name; });
  metrics_.push_back({std::move(metric), name, {"train_" + name, "val_" + name, "test_" + name}});
  plotted_.push_back("val_" + name);
}

std::shared_ptr<const Metric> Module::metric_of(std::string_view logged_name) const {
  for (const NamedMetric& known : metrics_)
    if (std::ranges::find(known.logged_as, logged_name) != known.logged_as.end()) return known.metric;
  return nullptr;
}

void Module::measure(Stage stage, const at::Tensor& outputs, const at::Tensor& labels) {
  EpochLog* const to = view_.log();
  if (to == nullptr) return;
  const at::NoGradGuard no_grad;
  for (const NamedMetric& known : metrics_)
    to->mark(known.logged_as[static_cast<std::size_t>(stage)], known.metric,
             known.metric->update(outputs, labels));
}

void Module::plot(std::string_view key, const at::Tensor& value, bool train) {
  const std::string name = (train ? "train_" : "val_") + std::string(key);
  if (!is_plotted(name)) plotted_.push_back(name);
  log(name, value);
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

void Module::freeze(torch::nn::Module& layer) {
  const std::string part = name_of(layer);
  if (!layers_without_shape(layer).empty())
    throw Error({.place = name() + "::freeze",
                 .found = "a lazy layer of '" + part + "' has no parameters yet",
                 .remedy = "make them first, with apply_init() or load_weights()"});
  for (const auto& item : named_modules("", /*include_self=*/false))
    if (is_within(item.key(), part)) frozen_.insert(item.key());
  frozen_.insert(part);
  for (const at::Tensor& parameter : layer.parameters()) {
    parameter.requires_grad_(false);
    parameter.mutable_grad().reset();  // or the optimizer would use it once more
  }
  layer.eval();
}

void Module::unfreeze(torch::nn::Module& layer) {
  const std::string part = name_of(layer);
  std::erase_if(frozen_,
                [&](const std::string& name) { return is_within(name, part) || is_within(part, name); });
  for (const at::Tensor& parameter : layer.parameters()) parameter.requires_grad_(true);
  layer.train(is_training());
}

void Module::train(bool on) {
  torch::nn::Module::train(on && !frozen_.contains(""));
  if (!on || frozen_.empty()) return;
  for (const auto& item : named_modules("", /*include_self=*/false))
    if (frozen_.contains(item.key())) item.value()->eval();
}

}  // namespace kindling
