// A small model with two optimizers.
#pragma once

#include <ATen/Functions.h>
#include <torch/nn.h>

#include "kindling/nn/manual_module.h"
#include "kindling/optim/adam.h"
#include "training/loop/small_fit.h"

namespace kindling {

// Points that shall come to lie where the data is, and who tells them apart. `made` is detached for the
// discriminator; the generator learns in every n-th batch.
class PointGan : public ManualModule {
 public:
  explicit PointGan(std::int64_t every_n = 1) : every_n_(every_n) {
    at::manual_seed(3);
    generator = register_module("generator", layers(2, 6, 1));
    discriminator = register_module("discriminator", layers(1, 6, 1));
  }
  NamedOptimizers configure_named_optimizers() override {
    NamedOptimizers optimizers;
    optimizers["generator"] = std::make_unique<Adam>(ParameterGroups(*generator), AdamOptions{.lr = 0.02});
    optimizers["discriminator"] =
        std::make_unique<Sgd>(ParameterGroups(*discriminator), SgdOptions{.lr = 0.1, .momentum = 0.5});
    return optimizers;
  }
  at::Tensor made(std::int64_t n) { return generator->forward(at::rand({n, 2}, parameters()[0].options())); }
  at::Tensor discriminator_loss(const at::Tensor& real, const at::Tensor& fake) {
    return at::softplus(-discriminator->forward(real)).mean() +
           at::softplus(discriminator->forward(fake.detach())).mean();
  }
  at::Tensor generator_loss(const at::Tensor& fake) {
    return at::softplus(-discriminator->forward(fake)).mean();
  }
  at::Tensor training_step(const Batch& batch) override {
    const at::Tensor fake = made(batch.num_samples());
    at::Tensor of_discriminator = discriminator_loss(batch[0], fake);
    if (poison == trainer().global_step() + 1 && is_discriminator_poisoned)
      of_discriminator = of_discriminator / 0;
    update("discriminator", of_discriminator);
    log("discriminator", of_discriminator);
    if (trainer().batch_index() % every_n_ != 0) return of_discriminator;
    at::Tensor of_generator = generator_loss(fake);
    if (poison == trainer().global_step() + 1 && !is_discriminator_poisoned) of_generator = of_generator / 0;
    update("generator", of_generator);
    return of_discriminator + of_generator;
  }

  torch::nn::Sequential generator, discriminator;
  std::int64_t poison = 0;  // the step
  bool is_discriminator_poisoned = false;

 private:
  static torch::nn::Sequential layers(int in, int hidden, int out) {
    return torch::nn::Sequential(torch::nn::Linear(in, hidden), torch::nn::Tanh(),
                                 torch::nn::Linear(hidden, out));
  }
  std::int64_t every_n_;
};

inline constexpr std::int64_t kGanBatches = 5;

inline TensorData gan_points() {
  return {{at::linspace(1, 3, 20).unsqueeze(1)}, {}, {.batch_size = 4, .shuffle = false, .resident = "off"}};
}

}  // namespace kindling
