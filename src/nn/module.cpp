#include "kindling/nn/module.h"

#include <algorithm>

#include "kindling/base/error.h"
#include "kindling/nn/evaluation_guard.h"

namespace kindling {
namespace {

[[noreturn]] void refuse(const torch::nn::Module& module, const char* method, const char* remedy) {
  throw Error(
      {.place = module.name() + "::" + method, .found = "the model does not define it", .remedy = remedy});
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

}  // namespace kindling
