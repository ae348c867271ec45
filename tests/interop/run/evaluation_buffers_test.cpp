#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "interop/run/in_python.h"
#include "kindling/data/data_loader.h"
#include "kindling/data/data_module.h"
#include "kindling/data/dataset.h"
#include "kindling/optim/sgd.h"
#include "kindling/tensors/state_dict.h"
#include "kindling/training/trainer.h"

namespace kindling {
namespace {

constexpr const char* kPrograms[] = {"counter", "average", "decomposed", "views", "codes", "spectral"};

// Relative to the compared values; a matmul that is split differently changes the last bits.
constexpr double kBufferTolerance = 1e-6;

double difference_from_python(const at::Tensor& ours, const at::Tensor& wanted) {
  return (ours.detach().to(at::kDouble) - wanted.to(at::kDouble)).abs().max().item<double>() /
         std::max(1.0, wanted.to(at::kDouble).abs().max().item<double>());
}

// The programs of buffer_programs.py, whose forward pass modifies buffers in training mode.
class ModifiedBuffers : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (python_with_torch().empty()) return;
    folder_ = std::filesystem::path(testing::TempDir()) / ("kindling-buffers-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
    const std::string script = std::string(KINDLING_TESTS) + "/interop/run/buffer_programs.py ";
    const std::string command =
        python_with_torch() + " " + script + folder_.string() + " >" + (folder_ / "log").string() + " 2>&1";
    succeeded_ = std::system(command.c_str()) == 0;
  }
  static void TearDownTestSuite() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  void SetUp() override {
    if (folder_.empty()) GTEST_SKIP() << "no Python with PyTorch is here to export models";
    ASSERT_TRUE(succeeded_) << read_file(folder_ / "log", 1 << 20);
    at::set_num_threads(1);
  }
  void TearDown() override { at::set_num_threads(threads_); }

  std::shared_ptr<ExportedModule> model(const std::string& name) const {
    return std::make_shared<ExportedModule>(ExportedModuleOptions{.file = folder_ / (name + ".pt2")});
  }
  StateDict pythons(const std::string& name) const { return load_state_file(folder_ / (name + ".pt")); }

  static void expect_final(const StateDict& python, const Module& model, const std::string& name) {
    for (const auto& [key, tensor] : state_dict(model).tensors)
      EXPECT_LE(difference_from_python(tensor, *python.find("final." + key)), kBufferTolerance)
          << name << ", " << key;
  }

 private:
  static inline std::filesystem::path folder_;
  static inline bool succeeded_ = false;
  int threads_ = at::get_num_threads();
};

// The four batches of Python's training, and several batches of validation.
class BatchesOfPython : public DataModule {
 public:
  explicit BatchesOfPython(const StateDict& python)
      : data_(std::make_shared<TensorDataset>(
            std::vector<at::Tensor>{python.find("x")->flatten(0, 1), python.find("y")->flatten(0, 1)})) {}
  std::shared_ptr<DataLoader> train_dataloader() override {
    return std::make_shared<DataLoader>(data_, DataLoaderOptions{.batch_size = 8, .shuffle = false});
  }
  std::shared_ptr<DataLoader> val_dataloader() override {
    return std::make_shared<DataLoader>(data_, DataLoaderOptions{.batch_size = 5, .shuffle = false});
  }

 private:
  std::shared_ptr<TensorDataset> data_;
};

TEST_F(ModifiedBuffers, AreTheSameAfterEveryEvaluation) {
  for (const std::string name : kPrograms) {
    const auto evaluated = model(name);
    const StateDict python = pythons(name);
    evaluated->train();
    evaluated->forward((*python.find("x"))[0]);
    const StateDict before = copy_to(state_dict(*evaluated), cpu());
    evaluated->eval();
    const at::Tensor first = evaluated->forward((*python.find("x"))[0]);
    EXPECT_TRUE(at::equal(first, evaluated->forward((*python.find("x"))[0]))) << name;
    BatchesOfPython data(python);
    Trainer trainer({.max_epochs = 1});
    trainer.validate(evaluated, data);
    trainer.test(evaluated, data);
    trainer.predict(evaluated, data);
    trainer.layer_summary(evaluated, data);
    for (const auto& [key, tensor] : before.tensors)
      EXPECT_TRUE(at::equal(tensor, *state_dict(*evaluated).find(key))) << name << ", " << key;
  }
}

TEST_F(ModifiedBuffers, AreThoseOfPythonAfterTrainingWithEvaluations) {
  for (const std::string name : kPrograms) {
    const auto trained = model(name);
    const StateDict python = pythons(name);
    Sgd optimizer(ParameterGroups(*trained), {.lr = 0.1});
    const at::Tensor x = *python.find("x"), y = *python.find("y");
    for (std::int64_t step = 0; step < x.size(0); ++step) {
      trained->train();
      optimizer.zero_grad();
      trained->training_step(Batch({x[step], y[step]})).backward();
      optimizer.step();
      const EvaluationGuard evaluation(*trained);
      const at::NoGradGuard no_grad;
      trained->forward(x[0]);
    }
    expect_final(python, *trained, name);
  }
}

// The sanity check, validations within the epoch and after it, the table of layers and a replay of the steps
// leave no traces.
TEST_F(ModifiedBuffers, AreThoseOfPythonAfterAFit) {
  for (const std::string name : kPrograms)
    for (const std::string step_graph : {"on", "off"}) {
      const auto trained = model(name);
      const StateDict python = pythons(name);
      BatchesOfPython data(python);
      Trainer trainer({.max_epochs = 1,
                       .step_graph = step_graph,
                       .val_check_interval = 2,
                       .optimizer = [](ParameterGroups parameters) {
                         return std::make_unique<Sgd>(std::move(parameters), SgdOptions{.lr = 0.1});
                       }});
      trainer.layer_summary(trained, data);
      trainer.fit(trained, data);
      expect_final(python, *trained, name + ", step_graph = " + step_graph);
    }
}

// A frozen layer is in evaluation mode, as in Python after eval() of it.
TEST_F(ModifiedBuffers, AreTheSameInFrozenLayers) {
  const auto frozen = model("views"), counter = model("counter");
  frozen->freeze_by_name({"inner.*"});
  counter->freeze_by_name({"net.*"});
  for (const auto& each : {frozen, counter}) {
    each->train();
    each->forward(at::ones({4, 3}));
  }
  EXPECT_TRUE(at::equal(*state_dict(*frozen).find("inner.history"), at::zeros({2, 4})));
  EXPECT_EQ(state_dict(*counter).find("calls")->item<std::int64_t>(), 1);
}

}  // namespace
}  // namespace kindling
