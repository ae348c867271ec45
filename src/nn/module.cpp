#include "kindling/nn/module.h"

#include "kindling/base/error.h"

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

at::Tensor Module::training_step(const Batch& batch) { return loss(forward_inputs(batch), batch.labels()); }

void Module::validation_step(const Batch& batch) {
  log("val_loss", loss(forward_inputs(batch), batch.labels()));
}

void Module::test_step(const Batch& batch) { log("test_loss", loss(forward_inputs(batch), batch.labels())); }

at::Tensor Module::predict_step(const Batch& batch) { return forward_inputs(batch); }

std::unique_ptr<Optimizer> Module::configure_optimizers() { return nullptr; }

}  // namespace kindling
