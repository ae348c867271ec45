#include "kindling/programs/exported_module.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <map>

#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/data/digits.h"
#include "kindling/optim/adam.h"
#include "kindling/optim/sgd.h"
#include "kindling/tensors/state_dict.h"
#include "kindling/training/trainer.h"
#include "support/python.h"
#include "support/scratch.h"

namespace kindling {
namespace {

// The programs of train_programs.py, exported and trained by Python once for all tests.
class ExportedPrograms : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (python_with_torch().empty()) return;
    folder_ = std::filesystem::path(testing::TempDir()) / ("kindling-programs-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
    const std::string script = std::string(KINDLING_TESTS) + "/programs/train_programs.py";
    const std::string command = python_with_torch() + " " + script + " " + folder_.string() + " >" +
                                file("said").string() + " 2>&1";
    succeeded_ = std::system(command.c_str()) == 0;
  }
  static void TearDownTestSuite() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  void SetUp() override {
    if (folder_.empty()) GTEST_SKIP() << "no Python with PyTorch is here to export models";
    ASSERT_TRUE(succeeded_) << read_file(file("said"), 1 << 20);
    threads_ = at::get_num_threads();
    at::set_num_threads(1);
  }
  void TearDown() override {
    if (threads_ > 0) at::set_num_threads(threads_);
  }
  static std::filesystem::path file(const std::string& name) { return folder_ / name; }

 private:
  static inline std::filesystem::path folder_;
  static inline bool succeeded_ = false;
  int threads_ = 0;
};

struct Case {
  const char* name;
  const char* loss;
};

class EachProgram : public ExportedPrograms, public ::testing::WithParamInterface<Case> {};

std::unique_ptr<Optimizer> optimizer_named(const std::string& name, Module& model) {
  if (name == "sgd") return std::make_unique<Sgd>(ParameterGroups(model), SgdOptions{.lr = 0.02, .momentum = 0.9});
  return std::make_unique<AdamW>(ParameterGroups(model), AdamWOptions{.lr = 1e-3});
}

// Relative to what is compared: the same operators in the same order give the same bits on most machines; a
// product that is cut into other pieces moves the last ones.
constexpr double kTolerance = 1e-6;

double difference(const at::Tensor& ours, const at::Tensor& pythons) {
  const at::Tensor wanted = pythons.to(at::kDouble);
  return (ours.detach().to(at::kDouble) - wanted).abs().max().item<double>() /
         std::max(1.0, wanted.abs().max().item<double>());
}

TEST_P(EachProgram, TrainsAsPythonTrainsIt) {
  for (const std::string optimizer : {"sgd", "adamw"}) {
    const StateDict pythons = load_state_file(file(std::string(GetParam().name) + "." + optimizer + ".pt"));
    std::vector<at::Tensor> data;
    while (const at::Tensor* each = pythons.find("data." + std::to_string(data.size()))) data.push_back(*each);
    ExportedModule model({.file = file(std::string(GetParam().name) + ".pt2"), .loss = GetParam().loss});
    const auto by = optimizer_named(optimizer, model);
    at::manual_seed(7);
    const at::Tensor losses = *pythons.find("losses");
    for (std::int64_t step = 0; step < losses.size(0); ++step) {
      std::vector<at::Tensor> batch;
      for (const at::Tensor& each : data) batch.push_back(each[step].narrow(0, 0, each.size(1) - step % 3));
      by->zero_grad();
      const at::Tensor loss = model.training_step(Batch(batch));
      loss.backward();
      by->step();
      ASSERT_LE(difference(loss, losses[step]), kTolerance) << optimizer << ", step " << step;
    }
    std::size_t compared = 0;
    for (const auto& [name, tensor] : state_dict(model).tensors) {
      const at::Tensor* final = pythons.find("final." + name);
      ASSERT_NE(final, nullptr) << name;
      EXPECT_LE(difference(tensor, *final), kTolerance) << optimizer << ", " << name;
      ++compared;
    }
    for (const auto& [name, tensor] : pythons.tensors) compared -= name.starts_with("final.") ? 1 : 0;
    EXPECT_EQ(compared, 0u) << "Python has other weights";
  }
}

INSTANTIATE_TEST_SUITE_P(Python, EachProgram,
                         ::testing::Values(Case{"resnet18", "cross_entropy"}, Case{"gpt", "cross_entropy"},
                                           Case{"lstm", "cross_entropy"}, Case{"gru", "cross_entropy"},
                                           Case{"unet", "cross_entropy"}, Case{"vit", "cross_entropy"},
                                           Case{"tied_mlp", "cross_entropy"}, Case{"mixed", "cross_entropy"},
                                           Case{"two_inputs", "mse"}, Case{"loss_inside", "output"},
                                           Case{"sizes", "cross_entropy"}, Case{"conv1d", "cross_entropy"}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace kindling
