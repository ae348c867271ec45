#include "kindling/programs/export_program.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "device/random_state.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/nn/evaluation_guard.h"
#include "kindling/nn/lenet.h"
#include "kindling/nn/linear_regression.h"
#include "kindling/nn/mlp.h"
#include "kindling/nn/small_cnn.h"
#include "kindling/nn/softmax_regression.h"
#include "kindling/tensors/state_dict.h"
#include "programs/exported_models.h"
#include "support/python.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

using namespace exported_models;
using Example = std::function<Batch(std::int64_t)>;

// Those that are recorded are 5, 7 and 11.
constexpr std::int64_t kTried[] = {1, 3, 5, 7, 27};

Batch images(std::int64_t n, std::int64_t channels, std::int64_t size) {
  return {at::randn({n, channels, size, size}), at::randint(10, {n})};
}

std::string run_python(const Scratch& scratch, const std::string& arguments) {
  const std::string command = python_with_torch() + " " KINDLING_TESTS "/programs/" + arguments + " >" +
                              (scratch / "log").string() + " 2>&1";
  const int code = std::system(command.c_str());
  const std::string log = read_file(scratch / "log", 1'000'000);
  return (code == 0 ? "" : "failed\n") + log;
}

// What a model computes, for check_exported.py.
void save_expected(const std::filesystem::path& file, const BatchFunction& forward, const Example& example) {
  StateDict state;
  for (const std::int64_t size : kTried) {
    const Batch in = example(size), out = forward(in);
    const std::string batch = std::to_string(size) + ".";
    for (std::size_t i = 0; i < in.tensors().size(); ++i)
      state.tensors.emplace_back("in." + batch + std::to_string(i), in.tensors()[i]);
    for (std::size_t i = 0; i < out.tensors().size(); ++i)
      state.tensors.emplace_back("out." + batch + std::to_string(i), out.tensors()[i]);
  }
  save_torch(state, file);
}

// Moves the statistics of batch norm away from where they began.
void warm_up(Module& model, const Batch& batch) {
  model.apply_init(batch);
  model.train();
  model.forward_inputs(batch);
}

struct InPython {
  Scratch scratch{};

  // `inputs` of an example are what the program takes; labels come behind.
  void add(const std::string& name, const std::shared_ptr<Module>& model, const Example& example,
           std::size_t inputs = 1) {
    warm_up(*model, example(8));
    export_program(*model, example(6), {.path = scratch / (name + ".pt2")});
    const EvaluationGuard evaluation(*model);
    const auto forward = [&](const Batch& batch) { return Batch::leaf(model->forward_inputs(batch)); };
    const auto without_labels = [&](std::int64_t size) {
      const Batch batch = example(size);
      return Batch(std::vector<at::Tensor>(batch.tensors().begin(), batch.tensors().begin() + inputs));
    };
    save_expected(scratch / (name + ".pt"), forward, without_labels);
  }
};

Batch words(std::int64_t n) { return {at::randint(50, {n, 12}), at::randint(50, {n, 12})}; }

Batch ids_and_mask(std::int64_t n) {
  return Batch::map({{"ids", Batch::leaf(at::randint(50, {n, 9}))},
                     {"mask", Batch::leaf(at::randint(2, {n, 9}).to(at::kBool))}});
}

TEST(ExportProgram, WritesWhatPythonReads) {
  if (python_with_torch().empty())
    GTEST_SKIP() << "there is no Python with PyTorch; KINDLING_TORCH_PYTHON can name one";
  torch::manual_seed(1);
  InPython python;
  const auto digits = [](std::int64_t n) { return images(n, 1, 28); };
  python.add("mlp", std::make_shared<Mlp>(), digits);
  python.add("lenet", std::make_shared<Lenet>(), digits);
  python.add("small_cnn", std::make_shared<SmallCnn>(), digits);
  python.add("softmax_regression", std::make_shared<SoftmaxRegression>(), digits);
  python.add("linear_regression", std::make_shared<LinearRegression>(), [](std::int64_t n) {
    return Batch{at::randn({n, 2}), at::randn({n, 1})};
  });
  python.add("resnet", std::make_shared<ResNet>(), [](std::int64_t n) { return images(n, 3, 32); });
  python.add("gru", std::make_shared<Gru>(), [](std::int64_t n) { return Batch{at::randn({n, 11, 8})}; });
  python.add("lstm", std::make_shared<Lstm>(), words);
  python.add("gpt", std::make_shared<Gpt>(), words);
  python.add("encoder", std::make_shared<Encoder>(), [](std::int64_t n) {
    return Batch{at::randn({n, 6, 32})};
  });
  python.add(
      "two_inputs", std::make_shared<TwoInputs>(),
      [](std::int64_t n) {
        return Batch{at::randn({n, 1, 9, 9}), at::randn({n, 6}), at::randint(3, {n})};
      },
      /*inputs=*/2);
  const auto maps = std::make_shared<Dictionaries>();
  const auto run = [&](const Batch& batch) { return maps->run(batch); };
  export_program(*maps, run, ids_and_mask(6), {.path = python.scratch / "dictionaries.pt2"});
  {
    const EvaluationGuard evaluation(*maps);
    save_expected(python.scratch / "dictionaries.pt", run, ids_and_mask);
  }
  const std::string log = run_python(python.scratch, "check_exported.py " + python.scratch.folder().string());
  EXPECT_EQ(log.find("FAILED"), std::string::npos) << log;
  for (const char* name : {"mlp", "lenet", "small_cnn", "softmax_regression", "linear_regression", "resnet",
                           "gru", "lstm", "gpt", "encoder", "two_inputs", "dictionaries"})
    EXPECT_NE(("\n" + log).find(std::string("\n") + name + " ok "), std::string::npos) << log;
  EXPECT_NE(log.find("'wte.weight'"), std::string::npos) << log;
  EXPECT_NE(log.find("['logits', 'pooled']"), std::string::npos) << log;
}

}  // namespace
}  // namespace kindling
