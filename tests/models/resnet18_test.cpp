// Kindling's ResNet-18 next to one written by hand in PyTorch, tests/models/fixtures/resnet18.py.
#include "kindling/models/resnet18.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/optim/sgd.h"
#include "kindling/tensors/state_dict.h"
#include "models/python_sums.h"
#include "support/python.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

const std::filesystem::path kResnetFixtures = std::filesystem::path(KINDLING_TESTS) / "models" / "fixtures";

TEST(Resnet18, StartsAndTrainsLikePythonsTwinForTwentySteps) {
  const StateDict python = load_state_file(kResnetFixtures / "resnet18_steps.pt");
  at::manual_seed(3);
  const auto model = std::make_shared<Resnet18>(Resnet18Options{.small_images = true});
  expect_sums(python, "first.", *model, 1e-9);  // the same numbers, summed in double
  const at::Tensor x = at::randn({20, 4, 3, 16, 16}).to(at::kDouble), y = at::randint(10, {20, 4});
  model->to(at::kDouble);  // convolutions sum in another order on another CPU, and 20 steps amplify it
  Sgd sgd(ParameterGroups(model->parameters()), {.lr = 0.01, .momentum = 0.9});
  for (std::int64_t step = 0; step < 20; ++step) {
    sgd.zero_grad();
    const at::Tensor loss = model->loss(model->forward(x[step]), y[step]);
    loss.backward();
    sgd.step();
    EXPECT_TRUE(close(loss.detach(), python.find("losses")->select(0, step), 1e-6)) << step;
  }
  expect_sums(python, "last.", *model, 1e-6);
}

int run_resnet_script(const std::string& what, const Scratch& scratch) {
  const std::string script = (kResnetFixtures / "resnet18.py").string();
  return std::system((python_with_torch() + " " + script + " " + what + " " + scratch.folder().string() +
                      " >" + (scratch / "log").string() + " 2>&1")
                         .c_str());
}

void expect_exchanges(const Scratch& scratch, const std::string& name, const Resnet18Options& options) {
  SCOPED_TRACE(name);
  const auto model = std::make_shared<Resnet18>(options);
  load_weights(*model, scratch / (name + ".pt"));  // strict: throws for a missing or unknown name
  const StateDict io = load_state_file(scratch / (name + ".io.pt"));
  model->eval();
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(close(model->forward(*io.find("x")), *io.find("y"), 1e-5));  // sums in another order
  save_torch(state_dict(*model), scratch / (name + ".ours.pt"));
}

TEST(Resnet18, ExchangesWeightsWithPythonByName) {
  if (python_with_torch().empty())
    GTEST_SKIP() << "there is no Python with PyTorch; KINDLING_TORCH_PYTHON can name one";
  const Scratch scratch;
  ASSERT_EQ(run_resnet_script("write", scratch), 0) << read_file(scratch / "log", 100'000);
  expect_exchanges(scratch, "resnet18", {.num_classes = 7});
  expect_exchanges(scratch, "resnet18_small_images", {.in_channels = 1, .small_images = true});
  EXPECT_EQ(run_resnet_script("check", scratch), 0) << read_file(scratch / "log", 100'000);
}

TEST(Resnet18, HasTheParameterCountOfThePaper) {
  const Resnet18 model({.num_classes = 1000});
  std::int64_t count = 0;
  for (const at::Tensor& parameter : model.parameters()) count += parameter.numel();
  EXPECT_EQ(count, 11'689'512);  // torchvision.models.resnet18()
}

TEST(Resnet18, RefusesOptionsOutOfRange) {
  EXPECT_EQ(error_text<ConfigError>([] { Resnet18({.in_channels = 0}); }),
            "resnet18: in_channels is 0; expected: an integer >= 1");
}

}  // namespace
}  // namespace kindling
