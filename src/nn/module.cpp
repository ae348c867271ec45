#include "kindling/nn/module.h"

#include <algorithm>

#include "kindling/base/error.h"
#include "nn/evaluation_guard.h"

namespace kindling {
namespace {

constexpr std::string_view kTrainPrefix = "train_", kValidPrefix = "val_";

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

at::Tensor Module::training_step(const Batch& batch) { return loss(forward_inputs(batch), batch.labels()); }

void Module::validation_step(const Batch& batch) {
  plot("loss", loss(forward_inputs(batch), batch.labels()), /*train=*/false);
}

void Module::test_step(const Batch& batch) { log("test_loss", loss(forward_inputs(batch), batch.labels())); }

at::Tensor Module::predict_step(const Batch& batch) { return forward_inputs(batch); }

std::unique_ptr<Optimizer> Module::configure_optimizers() { return nullptr; }

void Module::plot(std::string_view key, const at::Tensor& value, bool train) {
  const std::string name = std::string(train ? kTrainPrefix : kValidPrefix).append(key);
  if (std::find(plotted_.begin(), plotted_.end(), name) == plotted_.end()) plotted_.push_back(name);
  log(name, value);
}

ProgressBoard& Module::board() {
  if (!board_) board_ = std::make_shared<ProgressBoard>(ProgressBoardOptions{.xlabel = "epoch"});
  return *board_;
}

void Module::draw_epoch(const DeviceLog& log, bool train) {
  const std::int64_t per_epoch = train ? plot_train_per_epoch : plot_valid_per_epoch;
  const std::int64_t known_batches = train ? view_.num_train_batches() : 0;
  const std::int64_t num_batches = known_batches > 0 ? known_batches : log.num_rows();
  if (per_epoch < 1 || num_batches == 0) return;
  const auto epoch = static_cast<double>(view_.epoch());
  for (std::size_t column = 0; column < log.names().size(); ++column) {
    const std::string& name = log.names()[column];
    if (!name.starts_with(train ? kTrainPrefix : kValidPrefix)) continue;
    if (std::find(plotted_.begin(), plotted_.end(), name) == plotted_.end()) continue;
    for (std::int64_t row = 0; row < log.num_rows(); ++row)
      if (const auto value = log.value(row, column)) {
        const double share = train ? static_cast<double>(row) / static_cast<double>(num_batches) : 1;
        board().draw(epoch + share, *value, name, std::max<std::int64_t>(num_batches / per_epoch, 1));
      }
  }
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
