// Images and convolution weights in the channels-last memory format.
#include <ATen/Functions.h>
#include <torch/nn.h>

#include "kindling/base/error.h"
#include "kindling/models/lenet.h"
#include "kindling/models/mlp.h"
#include "kindling/nn/classifier.h"
#include "kindling/nn/lazy_conv2d.h"
#include "kindling/nn/lazy_linear.h"
#include "kindling/tensors/checkpoint_file.h"
#include "nn/precision.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"
#include "training/loop/resumed_fit.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

bool is_channels_last(const at::Tensor& tensor) {
  return tensor.is_contiguous(at::MemoryFormat::ChannelsLast) && !tensor.is_contiguous();
}

// A lazy convolution and one that has its weights from the start. Notes the layout of what it gets.
class LayoutNet : public Classifier {
 public:
  explicit LayoutNet(std::int64_t channels = 6)
      : first(register_module(
            "first", LazyConv2d(LazyConv2dOptions{.out_channels = 3, .kernel_size = {3, 3}, .bias = false}))),
        norm(register_module("norm", torch::nn::BatchNorm2d(3))),
        second(register_module("second",
                               torch::nn::Conv2d(torch::nn::Conv2dOptions(3, channels, 3).bias(false)))),
        last(register_module("last", LazyLinear(10))) {}
  at::Tensor forward(const at::Tensor& x) override {
    input_is_channels_last = is_channels_last(x);
    return last->forward(second->forward(norm->forward(first->forward(x)).relu()).relu().flatten(1));
  }
  LazyConv2d first;
  torch::nn::BatchNorm2d norm;
  torch::nn::Conv2d second;
  LazyLinear last;
  bool input_is_channels_last = false;
};

// Images with two channels, whose memory format can be detected.
TensorData two_channel_images() {
  auto generator = at::detail::createCPUGenerator(5);
  const at::Tensor images = at::rand({24, 2, 8, 8}, generator);
  const at::Tensor labels = at::randint(10, {24}, generator, at::kLong);
  return {{images, labels}, {images, labels}, {.batch_size = 6, .shuffle = false}};
}

class MemoryLayout : public OnDevice {
 protected:
  std::shared_ptr<LayoutNet> trained(const std::string& layout, const std::string& rule,
                                     FitOptions from = {}) {
    at::manual_seed(3);
    const auto model = std::make_shared<LayoutNet>();
    TensorData data = two_channel_images();
    Trainer trainer({.max_epochs = 3,
                     .num_gpus = num_gpus_wanted(),
                     .gradient_clip_val = 1,
                     .channels_last = layout,
                     .optimizer = rule_named(rule),
                     .callbacks = callbacks});
    trainer.fit(model, data, from);
    return model;
  }
  std::vector<std::shared_ptr<Callback>> callbacks{};
};
KINDLING_RUN_ON_TRAINER_DEVICES(MemoryLayout);

// Kernels of the other format sum in a different order, which changes the last bits of float32. In 12 steps
// Adam's division by small numbers enlarges them up to a hundredth of an update. No bias precedes the batch
// norm, because its gradient would consist of last bits only.
TEST_P(MemoryLayout, ChangesLastBitsOnly) {
  for (const std::string rule : {"sgd", "adam", "adamw"}) {
    const auto plain = trained("off", rule), turned = trained("on", rule);
    EXPECT_FALSE(plain->input_is_channels_last);
    EXPECT_TRUE(turned->input_is_channels_last);
    EXPECT_FALSE(is_channels_last(plain->second->weight));
    EXPECT_TRUE(is_channels_last(turned->first->weight));
    EXPECT_TRUE(is_channels_last(turned->second->weight));
    const auto wanted = plain->parameters(), found = turned->parameters();
    for (std::size_t i = 0; i < wanted.size(); ++i)
      EXPECT_TRUE(close(found[i], wanted[i], 1e-4)) << rule << i;
  }
}

TEST_P(MemoryLayout, ResumesBitIdentically) {
  struct Saver : Callback {
    void on_train_batch_end(Trainer& trainer, Module&) override {
      if (trainer.progress().global_step == 5) save_checkpoint(trainer.state_dict(), file);
    }
    std::filesystem::path file;
  };
  const Scratch scratch(memory_folder());
  const auto saver = std::make_shared<Saver>();
  saver->file = scratch / "state";
  callbacks = {saver};
  const auto whole = trained("on", "adam");
  callbacks = {};
  const auto rest = trained("on", "adam", {.resume = scratch / "state"});
  for (std::size_t i = 0; i < whole->parameters().size(); ++i)
    EXPECT_TRUE(same(rest->parameters()[i], whole->parameters()[i])) << i;
  EXPECT_TRUE(is_channels_last(rest->first->weight));
}

TEST_P(MemoryLayout, WorksInCustomLoops) {
  const auto model = std::make_shared<LayoutNet>();
  TensorData data = two_channel_images();
  Trainer trainer({.num_gpus = num_gpus_wanted(), .channels_last = "on"});
  trainer.prepare_model(model);
  trainer.train_step(trainer.prepare_batch(Batch{at::rand({4, 2, 8, 8}), at::zeros({4}, at::kLong)}));
  EXPECT_TRUE(model->input_is_channels_last);
  EXPECT_TRUE(is_channels_last(model->second->weight));
}

TEST(MemoryLayoutOption, ChoosesWhereItIsFaster) {
  const auto wants = [](const Module& model, const char* precision) {
    return wants_channels_last("auto", model, Precision::named(precision), cpu());
  };
  EXPECT_FALSE(wants(LayoutNet(32), "32-true"));
  EXPECT_TRUE(wants(LayoutNet(32), "bf16-mixed"));
  EXPECT_TRUE(wants(LayoutNet(32), "16-mixed"));
  EXPECT_TRUE(wants(LayoutNet(32), "bf16-true"));
  EXPECT_FALSE(wants(LayoutNet(31), "bf16-mixed"));
  EXPECT_FALSE(wants(Lenet(), "bf16-mixed"));
  EXPECT_FALSE(wants(Mlp(), "bf16-mixed"));
  EXPECT_FALSE(wants_channels_last("auto", LayoutNet(32), Precision::named("bf16-true"), Device(at::kCUDA)));
  EXPECT_TRUE(wants_channels_last("on", Mlp(), {}, cpu()));
  EXPECT_FALSE(wants_channels_last("off", LayoutNet(32), {}, cpu()));
}

TEST(MemoryLayoutOption, IsChecked) {
  try {
    Trainer({.channels_last = "yes"});
    FAIL() << "it was taken";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "TrainerOptions: channels_last is \"yes\"; expected: one of \"off\", \"on\", \"auto\"");
  }
}

}  // namespace
}  // namespace kindling
