#pragma once

#include <kindling/data/data_module.h>
#include <kindling/nn/module.h>
#include <kindling/optim/optimizer_factory.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace kindling_bench {

// What is trained, on what, and how: for all peers of a case the same weights, and the same batches in the
// same order, drawn from fixed seeds.
struct Workload {
  std::shared_ptr<kindling::Module> model;
  std::shared_ptr<kindling::DataModule> data;
  kindling::OptimizerFactory optimizer;
  double gradient_clip_val = 0;
  std::int64_t size = 1;  // of an epoch, in what the unit counts
  std::string unit;
};

Workload step_tiny();
Workload step_deep();
Workload fmnist_epoch();
Workload cnn_mnist();

// {float [60000, 784], int64 [60000]}
std::vector<at::Tensor> mnist_six_times();

// Order and size of the shuffled epochs of every case.
kindling::DataOptions shuffled(std::int64_t batch_size);

}  // namespace kindling_bench
