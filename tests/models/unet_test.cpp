// Kindling's U-Net next to one written by hand in PyTorch, tests/models/fixtures/unet.py.
#include "kindling/models/unet.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "kindling/base/error.h"
#include "kindling/optim/sgd.h"
#include "kindling/tensors/state_dict.h"
#include "models/python_sums.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

const std::filesystem::path kUnetFixtures = std::filesystem::path(KINDLING_TESTS) / "models" / "fixtures";
const UnetOptions kTwin{.num_classes = 3, .in_channels = 2, .width = 4, .depth = 2};

TEST(Unet, StartsAndTrainsLikePythonsTwin) {
  const StateDict python = load_state_file(kUnetFixtures / "unet_steps.pt");
  at::manual_seed(3);
  const auto model = std::make_shared<Unet>(kTwin);
  expect_sums(python, "first.", *model, 1e-9);  // the same numbers, summed in double
  const at::Tensor x = at::randn({10, 4, 2, 8, 12}).to(at::kDouble), y = at::randint(3, {10, 4, 8, 12});
  y.select(2, 0).fill_(-100);
  model->to(at::kDouble);  // convolutions sum in another order on another CPU, and the steps amplify it
  Sgd sgd(ParameterGroups(model->parameters()), {.lr = 0.05, .momentum = 0.9});
  at::Tensor outputs;
  for (std::int64_t step = 0; step < 10; ++step) {
    sgd.zero_grad();
    outputs = model->forward(x[step]);
    const at::Tensor loss = model->loss(outputs, y[step]);
    loss.backward();
    sgd.step();
    EXPECT_TRUE(close(loss.detach(), python.find("losses")->select(0, step), 1e-9)) << step;
  }
  EXPECT_TRUE(close(outputs.detach(), *python.find("outputs"), 1e-9));
  expect_sums(python, "last.", *model, 1e-7);  // of up to 2,304 numbers
}

TEST(Unet, HasTheChannelsOfThePaper) {
  const Unet model({.num_classes = 2, .in_channels = 1, .width = 64});
  std::int64_t convolutions = 0, up = 0;
  for (const auto& item : model.named_parameters())
    if (item.value().dim() == 4) (item.key().starts_with("up.") ? up : convolutions) += item.value().numel();
  // 3 x 3 from 1 to 64 channels, …, to 1024, and back from 1024 = 512 + 512 to 64; 1 x 1 to two classes.
  EXPECT_EQ(convolutions, 9 * (1 * 64 + 64 * 64 + 64 * 128 + 128 * 128 + 128 * 256 + 256 * 256 + 256 * 512 +
                               512 * 512 + 512 * 1024 + 1024 * 1024 + 1024 * 512 + 512 * 512 + 512 * 256 +
                               256 * 256 + 256 * 128 + 128 * 128 + 128 * 64 + 64 * 64) +
                              64 * 2);
  EXPECT_EQ(up, 4 * (1024 * 512 + 512 * 256 + 256 * 128 + 128 * 64));
}

TEST(Unet, RefusesSizesThatAreNotMultiples) {
  Unet model({.width = 1, .depth = 3});
  EXPECT_EQ(model.forward(at::zeros({1, 3, 8, 24})).sizes(), (std::vector<std::int64_t>{1, 2, 8, 24}));
  EXPECT_EQ(error_text<DataError>([&] {
              model.forward(at::zeros({1, 3, 16, 100}));
            }),
            "unet: the images have 16 x 100 pixels (height x width); expected: multiples of 8, 2 to the "
            "power of depth; resize or crop them, for example data.size = [16, 104], or lower depth");
  EXPECT_THROW(model.forward(at::zeros({1, 3, 9, 8})), DataError);
}

TEST(Unet, RefusesOptionsOutOfRange) {
  EXPECT_EQ(error_text<ConfigError>([] { Unet({.depth = 0}); }),
            "unet: depth is 0; expected: an integer >= 1 and <= 8");
}

}  // namespace
}  // namespace kindling
