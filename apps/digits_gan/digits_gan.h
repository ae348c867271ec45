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
                      {.doc = "random numbers that make an image", .min = 1}),
      kindling::field("width", &DigitsGanOptions::width, {.doc = "units of each hidden layer", .min = 1}),
      kindling::field("lr", &DigitsGanOptions::lr,
                      {.doc = "learning rate of both optimizers", .min = 0, .min_excluded = true}));
};

// A generator that makes digits from random numbers, and a discriminator that learns to tell them from real
// ones: a generative adversarial network (Goodfellow et al., 2014).
class DigitsGan : public kindling::ManualModule {
 public:
  explicit DigitsGan(DigitsGanOptions options);

  torch::Tensor generate(std::int64_t num_images);  // [num_images, 1, 8, 8] in 0…1
  // Images are taken for real if the outcome is above 0, [batch, 1].
  torch::Tensor forward(const torch::Tensor& images) override { return discriminator_->forward(images); }

  kindling::NamedOptimizers configure_named_optimizers() override;
  torch::Tensor training_step(const kindling::Batch& batch) override;
  // Plots val_distance, between as many generated images as the batch has real ones.
  void validation_step(const kindling::Batch& batch) override;
  torch::Tensor predict_step(const kindling::Batch& batch) override {
    return generate(batch.num_samples()).flatten(1);
  }
  Monitor monitor() const override { return {.name = "val_distance"}; }

 private:
  DigitsGanOptions options_;
  torch::nn::Sequential generator_, discriminator_;
};
