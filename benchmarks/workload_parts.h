#pragma once

#include <ATen/ATen.h>
#include <kindling/data/data_module.h>
#include <kindling/nn/module.h>
#include <kindling/optim/optimizer_factory.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace kindling_bench {

constexpr std::uint64_t kModelSeed = 0, kDataSeed = 1;

// Tensors in memory; no validation where `val` is empty.
class TensorData : public kindling::DataModule {
 public:
  struct Tensors {
    std::vector<at::Tensor> train, val{};
  };
  TensorData(Tensors tensors, kindling::DataOptions options)
      : DataModule(std::move(options)), tensors_(std::move(tensors)) {}

  std::shared_ptr<kindling::DataLoader> train_dataloader() override {
    return train_loader_of(tensors_.train);
  }
  std::shared_ptr<kindling::DataLoader> val_dataloader() override { return val_loader_of(tensors_.val); }

 private:
  Tensors tensors_;
};

template <class Model, class... Arguments>
std::shared_ptr<kindling::Module> seeded(Arguments&&... arguments) {
  at::manual_seed(kModelSeed);
  return std::make_shared<Model>(std::forward<Arguments>(arguments)...);
}

template <class Rule, class RuleOptions>
kindling::OptimizerFactory optimizer(RuleOptions options) {
  return [options](std::vector<at::Tensor> parameters) {
    return std::make_unique<Rule>(std::move(parameters), options);
  };
}

}  // namespace kindling_bench
