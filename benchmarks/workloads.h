#pragma once

#include <kindling/data/data_module.h>
#include <kindling/nn/module.h>
#include <kindling/optim/optimizer_factory.h>
#include <kindling/training/trainer_options.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "protocol.h"

namespace kindling_bench {

// A model, its data and its training options. All peers of a case have the same weights, and the same batches
// in the same order, drawn from fixed seeds.
struct Workload {
  std::shared_ptr<kindling::Module> model;
  std::shared_ptr<kindling::DataModule> data;
  kindling::OptimizerFactory optimizer;
  double gradient_clip_val = 0;
  std::int64_t accumulate_grad_batches = 1;
  std::string channels_last = "off";
  std::int64_t size = 1;  // of an epoch, in what the unit counts
  std::string unit;
};

Workload step_tiny();
Workload step_deep();
Workload lenet();
Workload card_lenet();  // for a GPU: longer epochs
Workload card_mlp();
Workload fmnist_epoch();
Workload cnn_mnist();

// Returns trainer options for the peer and the precision in `options`.
kindling::TrainerOptions trainer_options(const Options& options, const Workload& workload);

// {float [60000, 784] in 0…1, int64 [60000]}, or the images as bytes.
std::vector<at::Tensor> mnist_six_times();
std::vector<at::Tensor> mnist_bytes_six_times();

// {float [n, features], float [n, outputs]}, a problem that can be learnt.
std::vector<at::Tensor> regression(std::int64_t n, std::int64_t features, std::int64_t outputs);
// step_tiny on other data.
Workload tiny_mlp(std::vector<at::Tensor> data, const kindling::DataOptions& options);

// Order and size of the shuffled epochs of every case.
kindling::DataOptions shuffled(std::int64_t batch_size);

}  // namespace kindling_bench
