#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <cstdlib>

#include "kindling/interop/export_program.h"
#include "kindling/interop/exported_module.h"
#include "kindling/nn/classifier.h"
#include "kindling/nn/sequential_net.h"
#include "kindling/optim/sgd.h"
#include "kindling/tensors/state_dict.h"
#include "support/python.h"
#include "support/scratch.h"

namespace kindling {
namespace {

struct Net : SequentialNet<Classifier> {
  Net()
      : SequentialNet(torch::nn::Sequential(torch::nn::Linear(6, 16), torch::nn::BatchNorm1d(16),
                                            torch::nn::ReLU(), torch::nn::Linear(16, 3))) {}
};

constexpr std::int64_t kStepsOfEach = 6;

// Steps from `first` on.
void train_on(Module& model, const StateDict& data, std::int64_t first) {
  model.train();
  Sgd by(ParameterGroups(model), {.lr = 0.1});
  for (std::int64_t step = first; step < first + kStepsOfEach; ++step) {
    by.zero_grad();
    model.training_step(Batch{(*data.find("inputs"))[step], (*data.find("labels"))[step]}).backward();
    by.step();
  }
}

// The data of the second third of the steps, for Python.
void save_second_third(const StateDict& data, const std::filesystem::path& path) {
  StateDict part;
  for (const auto& [name, tensor] : data.tensors)
    part.tensors.emplace_back(name, tensor.narrow(0, kStepsOfEach, kStepsOfEach).contiguous());
  save_torch(part, path);
}

// A model trained in C++, then Python, then C++ equals one trained only in C++.
TEST(Story, FromCppToPythonAndBack) {
  if (python_with_torch().empty()) GTEST_SKIP() << "no Python with PyTorch is here to train on";
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const Scratch scratch;
  at::manual_seed(8);
  const auto model = std::make_shared<Net>(), all_the_way = std::make_shared<Net>();
  load_state_dict(*all_the_way, state_dict(*model));
  const StateDict data{.tensors = {{"inputs", at::randn({3 * kStepsOfEach, 8, 6})},
                                   {"labels", at::randint(3, {3 * kStepsOfEach, 8}, at::kLong)}},
                       .metadata = {}};
  train_on(*model, data, 0);
  export_program(*model, Batch{(*data.find("inputs"))[0]}, {.path = scratch / "first.pt2", .train = true});
  save_second_third(data, scratch / "data.pt");
  const std::string command = python_with_torch() + " " + KINDLING_TESTS + "/interop/run/train_on.py " +
                              (scratch / "first.pt2").string() + " " + (scratch / "data.pt").string() + " " +
                              std::to_string(kStepsOfEach) + " " + (scratch / "second.pt2").string();
  ASSERT_EQ(std::system(command.c_str()), 0);
  const auto back = std::make_shared<ExportedModule>(ExportedModuleOptions{.file = scratch / "second.pt2"});
  train_on(*back, data, 2 * kStepsOfEach);
  for (std::int64_t part = 0; part < 3; ++part) train_on(*all_the_way, data, part * kStepsOfEach);
  at::set_num_threads(threads);
  const StateDict found = state_dict(*back);
  for (const auto& [name, wanted] : state_dict(*all_the_way).tensors) {
    ASSERT_NE(found.find(name), nullptr) << name;
    // The same operators; on some machines, matmuls in the Python process are split differently.
    EXPECT_TRUE(at::allclose(*found.find(name), wanted, /*rtol=*/1e-6, /*atol=*/1e-6)) << name;
  }
  EXPECT_EQ(found.find("net.1.num_batches_tracked")->item<std::int64_t>(), 3 * kStepsOfEach);
}

}  // namespace
}  // namespace kindling
