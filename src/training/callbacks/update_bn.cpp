#include "kindling/training/update_bn.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>
#include <torch/nn/modules/batchnorm.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "device/float32_products.h"
#include "device/random_state.h"
#include "kindling/tensors/move.h"
#include "kindling/training/trainer.h"
#include "nn/precision.h"
#include "nn/scoped_model_state.h"
#include "training/state/batch_source.h"

namespace kindling {
namespace {

// One layer of any dimension; the destructor restores its momentum.
class NormStatistics {
 public:
  template <class Layer>
  explicit NormStatistics(Layer& layer)
      : options_(&layer.options),
        momentum_(layer.options.momentum()),
        num_batches_(layer.num_batches_tracked),
        reset_([&layer] { layer.reset_running_stats(); }) {}
  ~NormStatistics() { options_->momentum(momentum_); }
  NormStatistics(const NormStatistics&) = delete;
  NormStatistics& operator=(const NormStatistics&) = delete;

  void reset() const { reset_(); }
  void set_momentum(std::optional<double> momentum) const { options_->momentum(momentum); }
  const at::Tensor& num_batches() const { return num_batches_; }

 private:
  torch::nn::BatchNormOptions* options_;
  std::optional<double> momentum_;
  at::Tensor num_batches_;
  std::function<void()> reset_;
};

using Layers = std::vector<std::unique_ptr<NormStatistics>>;

template <class Layer>
bool add_if(torch::nn::Module& module, Layers& layers) {
  auto* layer = module.as<Layer>();
  if (layer == nullptr || !layer->is_training() || !layer->running_mean.defined()) return false;
  layers.push_back(std::make_unique<NormStatistics>(*layer));
  return true;
}

Layers layers_in_training_mode(const torch::nn::Module& model) {
  Layers layers;
  for (const auto& module : model.modules())
    add_if<torch::nn::BatchNorm1dImpl>(*module, layers) ||
        add_if<torch::nn::BatchNorm2dImpl>(*module, layers) ||
        add_if<torch::nn::BatchNorm3dImpl>(*module, layers);
  return layers;
}

// With the momentum 1/i in batch i the statistics are means over the batches, without reading i from the
// device. For layers that a batch passes more than once only the device knows i.
std::int64_t run_batches(Trainer& trainer, Module& model, DataModule& data, const Layers& layers,
                         bool device_counts) {
  const auto loader = data.train_dataloader();
  DataLoader::Cursor cursor(*loader);
  cursor.stage_for(trainer.device());
  for (const auto& layer : layers) layer->reset();
  const TrainerOptions& options = trainer.options();
  std::int64_t limit =
      limit_of_epoch(*loader, Stage::train, options.limit_train_batches, batches_of_run(options))
          .value_or(cursor.num_batches());
  limit = std::min(limit, cursor.num_batches());
  if (options.overfit_batches) {
    limit = std::min(options.overfit_batches->of(limit), limit);
    cursor.keep_order();
  }
  const Float32Products products(options.float32_matmul_precision);
  const Precision precision = Precision::named(options.precision);
  cursor.seek(0);
  std::int64_t number = 0;
  for (Batch batch; number < limit && cursor.next(batch);) {
    ++number;
    if (cursor.gives_views()) batch = copy_to(batch, cpu());  // a hook may write to it
    for (const auto& layer : layers)
      layer->set_momentum(device_counts ? std::nullopt : std::optional(1 / static_cast<double>(number)));
    const AutocastScope autocast(precision, trainer.device());
    batch = data.on_after_batch_transfer(move_to(std::move(batch), trainer.device()), Stage::train);
    model.forward_inputs(in_precision(std::move(batch), precision));
  }
  return number;
}

// Returns how often the most-used layer has been used.
std::int64_t most_uses(const Layers& layers) {
  std::vector<at::Tensor> uses;
  for (const auto& layer : layers) uses.push_back(layer->num_batches());
  return copy_to(at::stack(uses).max(), cpu()).item<std::int64_t>();
}

}  // namespace

void update_bn(Trainer& trainer, Module& model, DataModule& data) {
  const RandomStateGuard random_state(trainer.device());
  const at::NoGradGuard no_grad;
  const ScopedModelState state(model);
  const ScopedTrainer unlogged(model, {});
  // Layers of a model in training mode that the user has put into evaluation mode stay there.
  if (!model.is_training()) model.train();
  const Layers layers = layers_in_training_mode(model);
  if (layers.empty()) return;
  data.prepare();
  const std::int64_t num_batches = run_batches(trainer, model, data, layers, /*device_counts=*/false);
  if (most_uses(layers) > num_batches) run_batches(trainer, model, data, layers, /*device_counts=*/true);
}

bool has_batch_norm(const Module& model) {
  const auto modules = model.modules();
  return std::ranges::any_of(modules, [](const auto& module) {
    const auto keeps = [](const auto* layer) { return layer != nullptr && layer->running_mean.defined(); };
    return keeps(module->template as<torch::nn::BatchNorm1dImpl>()) ||
           keeps(module->template as<torch::nn::BatchNorm2dImpl>()) ||
           keeps(module->template as<torch::nn::BatchNorm3dImpl>());
  });
}

}  // namespace kindling
