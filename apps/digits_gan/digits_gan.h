#pragma once

#include <kindling/config/options.h>
#include <kindling/nn/manual_module.h>
#include <torch/nn.h>

struct DigitsGanOptions {
  std::int64_t latent = 16;
  std::int64_t width = 128;
  double lr = 1e-3;
  static constexpr auto fields = kindling::fields(
      kindling::field("latent", &DigitsGanOptions::latent,
                      {.doc = "random inputs of the generator", .min = 1}),
      kindling::field("width", &DigitsGanOptions::width, {.doc = "units of each hidden layer", .min = 1}),
      kindling::field("lr", &DigitsGanOptions::lr,
                      {.doc = "learning rate of both optimizers", .min = 0, .min_excluded = true}));
};

// A generative adversarial network (Goodfellow et al., 2014): a generator makes digits from random numbers,
// and a discriminator learns to distinguish them from real ones.
class DigitsGan : public kindling::ManualModule {
 public:
  explicit DigitsGan(DigitsGanOptions options);

  torch::Tensor generate(std::int64_t num_images);  // [num_images, 1, 8, 8] in 0…1
  // Returns [batch, 1]; values above 0 classify an image as real.
  torch::Tensor forward(const torch::Tensor& images) override { return discriminator_->forward(images); }

  kindling::NamedOptimizers configure_named_optimizers() override;
  torch::Tensor training_step(const kindling::Batch& batch) override;
  // Plots val_distance, the distance between the real images of the batch and as many generated ones.
  void validation_step(const kindling::Batch& batch) override;
  torch::Tensor predict_step(const kindling::Batch& batch) override {
    return generate(batch.num_samples()).flatten(1);
  }
  Monitor monitor() const override { return {.name = "val_distance"}; }

 private:
  DigitsGanOptions options_;
  torch::nn::Sequential generator_, discriminator_;
};
