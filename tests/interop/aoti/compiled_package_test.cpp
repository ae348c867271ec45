#include "kindling/interop/compiled_package.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/version.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/optim/sgd.h"
#include "kindling/tensors/state_dict.h"
#include "support/python.h"
#include "support/scratch.h"

namespace kindling {
namespace {

// The packages of compile_programs.py, compiled by Python once for all tests.
class CompiledPrograms : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (python_with_torch().empty()) {
      skipped_ = "no Python with PyTorch is here to compile programs";
      return;
    }
    folder_ = std::filesystem::path(testing::TempDir()) / ("kindling-packages-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
    const int status =
        std::system((python_with_torch() + " " + KINDLING_TESTS + "/interop/aoti/compile_programs.py " +
                     folder_.string() + " " + TORCH_VERSION + " >" + file("said").string() + " 2>" +
                     file("warned").string())
                        .c_str());
    if (WEXITSTATUS(status) == 77) skipped_ = read_file(file("said"), 1 << 20);
    succeeded_ = status == 0;
  }
  static void TearDownTestSuite() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  void SetUp() override {
    if (!skipped_.empty()) GTEST_SKIP() << skipped_;
    ASSERT_TRUE(succeeded_) << read_file(file("said"), 1 << 20) << read_file(file("warned"), 1 << 20);
    at::manual_seed(5);
  }
  static std::filesystem::path file(const std::string& name) { return folder_ / name; }

 private:
  static inline std::filesystem::path folder_;
  static inline std::string skipped_;
  static inline bool succeeded_ = false;
};

// Changes every parameter and every persistent buffer.
void shake(ExportedModule& model) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : state_dict(model).tensors)
    if (tensor.is_floating_point()) tensor.add_(at::rand_like(tensor), 0.5);
}

using Inputs = std::vector<at::Tensor>;

// Tokens and gains, [batch, 5].
Inputs inputs_of(std::int64_t batch) { return {at::randint(11, {batch, 5}), at::rand({batch, 5})}; }

at::Tensor evaluated(ExportedModule& model, const Inputs& inputs) {
  const at::NoGradGuard no_grad;
  model.eval();
  return model.run(inputs)[0];
}

// Relative to the largest value. Compiled code fuses operators and sums in another order: a few epsilons of
// float. A single value of the previous weights would make the difference a thousand times as large.
constexpr double kServedTolerance = 1e-6;

double relative_difference(const at::Tensor& found, const at::Tensor& wanted) {
  return ((found - wanted).abs().max() / wanted.abs().max()).item<double>();
}

// Inputs of several sizes; the second half is stored in memory as [5, batch].
std::vector<Inputs> batches() {
  std::vector<Inputs> all;
  for (const std::int64_t size : {1, 4, 33}) all.push_back(inputs_of(size));
  for (const std::int64_t size : {1, 4, 33})
    all.push_back({at::randint(11, {5, size}).t(), at::rand({5, size}).t()});
  return all;
}

TEST_F(CompiledPrograms, ServeAModelsWeights) {
  for (const char* package_name : {"served.pt2", "folding.pt2"})
    for (const char* program : {"training.pt2", "evaluation.pt2"}) {
      ExportedModule model({.file = file(program)});
      CompiledPackage package(file(package_name), model);
      for (int round = 0; round < 3; ++round) {
        shake(model);
        package.set_weights(model);
        for (const Inputs& batch : batches())
          EXPECT_LE(relative_difference(package.run(batch)[0], evaluated(model, batch)), kServedTolerance)
              << package_name << " " << program << " round " << round << " " << batch[0].sizes();
      }
    }
}

TEST_F(CompiledPrograms, BeginWithTheModelsWeights) {
  ExportedModule model({.file = file("evaluation.pt2")});
  shake(model);
  const CompiledPackage package(file("served.pt2"), model);
  const Inputs inputs = inputs_of(4);
  EXPECT_LE(relative_difference(package.run(inputs)[0], evaluated(model, inputs)), kServedTolerance);
}

TEST_F(CompiledPrograms, KeepCopiesOfTheWeights) {
  auto model = std::make_unique<ExportedModule>(ExportedModuleOptions{.file = file("training.pt2")});
  CompiledPackage package(file("served.pt2"), *model);
  shake(*model);
  package.set_weights(*model);
  const Inputs inputs = inputs_of(4);
  const at::Tensor before = package.run(inputs)[0];
  shake(*model);
  EXPECT_TRUE(at::equal(package.run(inputs)[0], before));
  model.reset();
  EXPECT_TRUE(at::equal(package.run(inputs)[0], before));
}

// A model exported by Python, trained here, and served by code that Python compiled beforehand.
TEST_F(CompiledPrograms, ServeWeightsTrainedInCpp) {
  const Scratch scratch;
  const auto model = std::make_shared<ExportedModule>(ExportedModuleOptions{.file = file("training.pt2")});
  CompiledPackage package(file("served.pt2"), *model);
  const Inputs inputs = inputs_of(16);
  const at::Tensor before = package.run(inputs)[0];
  Sgd by(ParameterGroups(*model), {.lr = 0.1});
  model->train();
  for (int step = 0; step < 20; ++step) {
    by.zero_grad();
    model->training_step(Batch{inputs[0], inputs[1], at::roll(inputs[0], 1, 1)}).backward();
    by.step();
  }
  save_safetensors(state_dict(*model), scratch / "weights.safetensors");

  // Like another process.
  const auto served = std::make_shared<ExportedModule>(ExportedModuleOptions{.file = file("evaluation.pt2")});
  load_weights(*served, scratch / "weights.safetensors");
  package.set_weights(*served);
  const at::Tensor found = package.run(inputs)[0];
  EXPECT_GT(relative_difference(found, before), 0.1);
  EXPECT_LE(relative_difference(found, evaluated(*model, inputs)), kServedTolerance);

  served->save(scratch / "trained.pt2");
  save_torch({.tensors = {{"ids", inputs[0]}, {"gain", inputs[1]}}, .metadata = {}}, scratch / "input.pt");
  ASSERT_EQ(std::system((python_with_torch() + " " + KINDLING_TESTS + "/interop/run/run_program.py " +
                         (scratch / "trained.pt2").string() + " " + (scratch / "input.pt").string() + " " +
                         (scratch / "output.pt").string() + " 2>/dev/null")
                            .c_str()),
            0);
  EXPECT_LE(relative_difference(found, *load_state_file(scratch / "output.pt").find("output")),
            kServedTolerance);
}

TEST_F(CompiledPrograms, RefuseFrozenWeights) {
  ExportedModule model({.file = file("evaluation.pt2")});
  const std::string text = error_text<CheckpointError>([&] { CompiledPackage(file("baked.pt2"), model); });
  EXPECT_NE(
      text.find("the compiled code contains fixed values for fc.bias, conv.bias, bn.weight, bn.bias, scale, "
                "bn.running_mean, bn.running_var;"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("always_keep_tensor_constants"), std::string::npos);
}

TEST_F(CompiledPrograms, RefuseTrainingMode) {
  ExportedModule model({.file = file("training.pt2")});
  const at::Tensor random = at::globalContext().defaultGenerator(at::kCPU).get_state();
  const std::string text = error_text<CheckpointError>([&] { CompiledPackage(file("drawing.pt2"), model); });
  EXPECT_NE(text.find("its outputs differ"), std::string::npos) << text;
  EXPECT_NE(text.find("exported after model.eval()"), std::string::npos);
  EXPECT_TRUE(model.is_training());
}

TEST_F(CompiledPrograms, RefuseAnotherModel) {
  ExportedModule model({.file = file("evaluation.pt2")}), wider({.file = file("wider.pt2")}),
      other({.file = file("other.pt2")});
  CompiledPackage package(file("served.pt2"), model);
  const Inputs inputs = inputs_of(4);
  const at::Tensor before = package.run(inputs)[0];
  const auto text = [&](const ExportedModule& of) {
    return error_text<CheckpointError>([&] { package.set_weights(of); });
  };
  EXPECT_NE(text(wider).find("fc.weight (Float [12, 12], in the package Float [8, 8])"), std::string::npos)
      << text(wider);
  EXPECT_NE(text(other).find("the compiled code uses fc.bias, fc.weight, which the model does not have"),
            std::string::npos)
      << text(other);
  ExportedModule twice({.file = file("evaluation.pt2")});
  twice.to(at::kDouble);
  EXPECT_NE(text(twice).find("fc.bias (Double [8], in the package Float [8])"), std::string::npos)
      << text(twice);
  const ExportedModule untied({.file = file("untied.pt2")});  // two weights share one constant
  EXPECT_NE(text(untied).find("the compiled code contains fixed values for emb.weight;"), std::string::npos)
      << text(untied);
  EXPECT_TRUE(at::equal(package.run(inputs)[0], before));
}

TEST_F(CompiledPrograms, RefuseOtherInputs) {
  ExportedModule model({.file = file("evaluation.pt2")});
  const CompiledPackage package(file("served.pt2"), model);
  const auto text = [&](const Inputs& inputs) { return error_text<DataError>([&] { package.run(inputs); }); };
  const at::Tensor ids = at::randint(11, {4, 5}), gain = at::rand({4, 5});
  EXPECT_NE(text({ids}).find("got 1 tensors; expected: 2"), std::string::npos);
  EXPECT_NE(text({ids, gain, gain}).find("got 3 tensors"), std::string::npos);
  EXPECT_NE(text({at::randint(11, {4, 6}), gain}).find("it is Long [4, 6]; expected: Long [s"),
            std::string::npos);
  EXPECT_NE(text({ids, at::rand({3, 5})}).find("sizes with the same symbol must be equal"),
            std::string::npos);
  EXPECT_NE(text({at::randint(11, {0, 5}), at::rand({0, 5})}).find("sizes from 1 to any"), std::string::npos);
  EXPECT_NE(text({ids.to(at::kInt), gain}).find("it is Int [4, 5]"), std::string::npos);
  // A model accepts these in other precisions; the code was compiled for one.
  EXPECT_NE(text({ids, gain.to(at::kDouble)}).find("it is Double [4, 5] on cpu; expected: Float on cpu"),
            std::string::npos);
}

TEST_F(CompiledPrograms, ChangeWeightsBetweenCalls) {
  for (const char* name : {"served.pt2", "folding.pt2"}) {
    ExportedModule first({.file = file("evaluation.pt2")}), second({.file = file("evaluation.pt2")});
    shake(second);
    CompiledPackage package(file(name), first);
    const Inputs inputs = inputs_of(4);
    const at::Tensor of_first = package.run(inputs)[0];
    package.set_weights(second);
    const at::Tensor of_second = package.run(inputs)[0];
    ASSERT_FALSE(at::equal(of_first, of_second));
    std::atomic<bool> is_over = false;
    std::size_t calls = 0, mixed = 0;
    std::thread server([&] {
      for (; !is_over; ++calls) {
        const at::Tensor found = package.run(inputs)[0];
        if (!at::equal(found, of_first) && !at::equal(found, of_second)) ++mixed;
      }
    });
    for (int i = 0; i < 300; ++i) package.set_weights(i % 2 == 0 ? first : second);
    is_over = true;
    server.join();
    EXPECT_GT(calls, 0u);
    EXPECT_EQ(mixed, 0u) << name << " of " << calls;
  }
}

TEST_F(CompiledPrograms, RefuseOtherFiles) {
  const Scratch scratch;
  ExportedModule model({.file = file("evaluation.pt2")});
  const auto text = [&](const std::filesystem::path& path) {
    return error_text<CheckpointError>([&] { CompiledPackage(path, model); });
  };
  EXPECT_NE(text("nowhere.pt2").find("nowhere.pt2: no such file"), std::string::npos);
  EXPECT_NE(text(scratch.folder()).find("no such file"), std::string::npos);
  EXPECT_NE(text(file("evaluation.pt2")).find("evaluation.pt2: LibTorch reports: "), std::string::npos);
  std::string whole = read_file(file("served.pt2"), 1 << 24);
  write_file_atomically(scratch / "half.pt2", whole.substr(0, whole.size() / 2));
  EXPECT_NE(
      text(scratch / "half.pt2").find("expected: a package of torch._inductor.aoti_compile_and_package"),
      std::string::npos);
}

}  // namespace
}  // namespace kindling
