// Small models and data for tests of the trainer.
#pragma once

#include <ATen/Functions.h>
#include <torch/nn.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "kindling/data/data_module.h"
#include "kindling/data/image_data.h"
#include "kindling/loggers/memory_logger.h"
#include "kindling/nn/module.h"
#include "kindling/optim/sgd.h"
#include "kindling/training/trainer.h"

namespace kindling {

// Tensors as data: the training samples, and the validation samples if any.
class TensorData : public DataModule {
 public:
  TensorData(std::vector<at::Tensor> train, std::vector<at::Tensor> val, DataOptions options)
      : DataModule(std::move(options)), train_(std::move(train)), val_(std::move(val)) {}

  void prepare_data() override { ++num_preparations; }
  std::shared_ptr<DataLoader> train_dataloader() override { return train_loader_of(train_); }
  std::shared_ptr<DataLoader> val_dataloader() override { return val_loader_of(val_); }

  int num_preparations = 0;

 private:
  std::vector<at::Tensor> train_, val_;
};

// n samples x = 0, 1, …, n-1 with labels 2x, in order; `num_val` of them for validation.
inline TensorData ramp(std::int64_t n, std::int64_t num_val, std::int64_t batch_size) {
  const at::Tensor x = at::arange(n, at::kFloat).unsqueeze(1);
  std::vector<at::Tensor> val;
  if (num_val > 0) val = {x.narrow(0, 0, num_val), 2 * x.narrow(0, 0, num_val)};
  return {{x, 2 * x}, val, {.batch_size = batch_size, .shuffle = false}};
}

// y = w·x with w = 0 at first; the loss of a batch is the mean of |y - 2x| = |w - 2|·mean(x) for x >= 0, so
// that its gradient is -mean(x) below the true weight. Remembers what it has seen.
class Slope : public Module {
 public:
  Slope() : weight(register_parameter("weight", at::zeros({1}))) {}

  at::Tensor forward(const at::Tensor& x) override { return x * weight; }
  at::Tensor loss(const at::Tensor& y, const at::Tensor& labels) override {
    return (y - labels).abs().mean();
  }
  at::Tensor training_step(const Batch& batch) override {
    train_sizes.push_back(batch.num_samples());
    seen_batch_indices.push_back(trainer().batch_index());
    EXPECT_TRUE(is_training());
    return Module::training_step(batch);
  }
  void validation_step(const Batch& batch) override {
    ++num_val_batches;
    EXPECT_FALSE(is_training());
    EXPECT_FALSE(at::GradMode::is_enabled());
    Module::validation_step(batch);
  }

  at::Tensor weight;
  std::vector<std::int64_t> train_sizes, seen_batch_indices;
  std::int64_t num_val_batches = 0;
};

inline OptimizerFactory sgd(double lr) {
  return [lr](std::vector<at::Tensor> parameters) {
    return std::make_unique<Sgd>(std::move(parameters), SgdOptions{.lr = lr});
  };
}

// `n` images uint8 [1, size, size] of noise with a bright row that tells their class, for training and again
// for validation.
class NoiseImages : public ImageData {
 public:
  NoiseImages(std::int64_t n, std::int64_t size, std::int64_t batch_size,
              const std::string& resident = "auto")
      : ImageData({}, {.batch_size = batch_size, .resident = resident}), n_(n), size_(size) {}

 protected:
  Split load() override { return {.train = made(1), .val = made(2)}; }

 private:
  LabelledImages made(std::int64_t start) const {
    // A congruential generator of its own: LibTorch's stream stays what the model needs it for.
    at::Tensor images = at::arange(n_ * size_ * size_, at::kLong).add_(start);
    images = images.mul(7919).add_(104729).remainder(251).remainder(120).to(at::kByte);
    images = images.view({n_, 1, size_, size_});
    at::Tensor labels = at::arange(start, start + n_, at::kLong).mul(7).remainder(size_).remainder(10);
    for (std::int64_t i = 0; i < n_; ++i) images[i][0].select(0, labels[i].item<std::int64_t>()).fill_(255);
    return {images, labels.to(at::kByte)};
  }

  std::int64_t n_, size_;
};

inline std::vector<std::string> names_of(const Record& record) {
  std::vector<std::string> names;
  for (const auto& [name, value] : record.values) names.push_back(name);
  return names;
}

// Everything but clocks and transfer counts.
inline NamedValues numbers_of(const Record& record) {
  NamedValues numbers;
  for (const auto& [name, value] : record.values)
    if (!name.starts_with("host") && !name.starts_with("device") && name != "epoch_time_s" &&
        name != "samples_per_s" && name != "data_wait_share" && !name.starts_with("time_share/") &&
        !name.starts_with("step_time_s/"))
      numbers.emplace_back(name, value);
  return numbers;
}

inline double value_of(const Record& record, const std::string& name) {
  const double* value = record.find(name);
  return value == nullptr ? std::nan("") : *value;
}

}  // namespace kindling
