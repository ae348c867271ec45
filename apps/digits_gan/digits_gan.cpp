#include "digits_gan.h"

#include <kindling/optim/adam.h>

namespace nn = torch::nn;

namespace {

// Energy distance of two sets of points, 0 for the same distribution (Székely and Rizzo, 2013).
torch::Tensor energy_distance(const torch::Tensor& x, const torch::Tensor& y) {
  const auto mean_within = [](const torch::Tensor& a) {
    const auto n = static_cast<double>(a.size(0));
    return torch::cdist(a, a).sum() / (n * (n - 1));
  };
  return 2 * torch::cdist(x, y).mean() - mean_within(x) - mean_within(y);
}

}  // namespace

DigitsGan::DigitsGan(DigitsGanOptions options)
    : options_(options),
      generator_(register_module(
          "generator",
          nn::Sequential(nn::Linear(nn::LinearOptions(options.latent, options.width).bias(false)),
                         nn::BatchNorm1d(options.width), nn::ReLU(), nn::Linear(options.width, options.width),
                         nn::ReLU(), nn::Linear(options.width, 64), nn::Sigmoid(),
                         nn::Unflatten(nn::UnflattenOptions(1, {1, 8, 8}))))),
      discriminator_(register_module(
          "discriminator", nn::Sequential(nn::Flatten(), nn::Linear(64, options.width),
                                          nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)),
                                          nn::Dropout(0.3), nn::Linear(options.width, options.width),
                                          nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)),
                                          nn::Linear(options.width, 1)))) {}

torch::Tensor DigitsGan::generate(std::int64_t num_images) {
  const torch::Tensor weight = generator_->parameters()[0];  // determines device and dtype
  return generator_->forward(torch::randn({num_images, options_.latent}, weight.options()));
}

kindling::NamedOptimizers DigitsGan::configure_named_optimizers() {
  const kindling::AdamOptions options{.lr = options_.lr, .betas = {0.5, 0.999}};
  kindling::NamedOptimizers optimizers;
  optimizers["generator"] = std::make_unique<kindling::Adam>(*generator_, options);
  optimizers["discriminator"] = std::make_unique<kindling::Adam>(*discriminator_, options);
  return optimizers;
}

torch::Tensor DigitsGan::training_step(const kindling::Batch& batch) {
  const torch::Tensor generated = generate(batch.num_samples());
  // softplus(-x) = -log σ(x): real images should score above 0, generated ones below.
  const torch::Tensor of_discriminator =
      torch::softplus(-forward(batch[0])).mean() + torch::softplus(forward(generated.detach())).mean();
  update("discriminator", of_discriminator);
  const torch::Tensor of_generator = torch::softplus(-forward(generated)).mean();
  update("generator", of_generator);
  log("discriminator_loss", of_discriminator);
  return of_generator;
}

void DigitsGan::validation_step(const kindling::Batch& batch) {
  if (batch.num_samples() < 2) return;
  plot("distance", energy_distance(batch[0].flatten(1), generate(batch.num_samples()).flatten(1)),
       /*train=*/false);
}
