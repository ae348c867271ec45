#include "workloads.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <kindling/base/error.h>
#include <kindling/formats/idx.h>
#include <kindling/nn/classifier.h>
#include <kindling/optim/adam.h>
#include <kindling/optim/sgd.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "workload_parts.h"

namespace kindling_bench {
namespace {

constexpr std::int64_t kShuffleSeed = 1000;
constexpr auto kChannelsLast = at::MemoryFormat::ChannelsLast;

// --- Models
// ---------------------------------------------------------------------------------------------------------

torch::nn::Sequential linear_layers(const std::vector<std::int64_t>& widths) {
  torch::nn::Sequential net;
  for (std::size_t i = 1; i < widths.size(); ++i) {
    net->push_back(torch::nn::Linear(widths[i - 1], widths[i]));
    if (i + 1 < widths.size()) net->push_back(torch::nn::ReLU());
  }
  return net;
}

class RegressionMlp : public kindling::Module {
 public:
  explicit RegressionMlp(const std::vector<std::int64_t>& widths)
      : net_(register_module("net", linear_layers(widths))) {}
  at::Tensor forward(const at::Tensor& inputs) override { return net_->forward(inputs); }
  bool has_static_graph() const override { return true; }
  at::Tensor loss(const at::Tensor& outputs, const at::Tensor& targets) override {
    return at::mse_loss(outputs, targets);
  }

 private:
  torch::nn::Sequential net_;
};

// Loss in training, loss and accuracy in validation.
class ImageMlp : public kindling::Classifier {
 public:
  ImageMlp() : net_(register_module("net", linear_layers({784, 256, 10}))) {}
  at::Tensor forward(const at::Tensor& images) override { return net_->forward(images.flatten(1)); }
  at::Tensor training_step(const kindling::Batch& batch) override { return Module::training_step(batch); }
  bool has_static_graph() const override { return true; }

 private:
  torch::nn::Sequential net_;
};

// LeNet of Dive into Deep Learning.
class LeNet : public kindling::Module {
 public:
  LeNet() {
    using namespace torch::nn;
    net_ = register_module(  // braces: the layers draw their weights in this order
        "net", Sequential{Conv2d(Conv2dOptions(1, 6, 5).padding(2)), Sigmoid(), AvgPool2d(2),
                          Conv2d(6, 16, 5), Sigmoid(), AvgPool2d(2), Flatten(), Linear(400, 120), Sigmoid(),
                          Linear(120, 84), Sigmoid(), Linear(84, 10)});
  }
  bool has_static_graph() const override { return true; }
  at::Tensor forward(const at::Tensor& images) override { return net_->forward(images); }
  at::Tensor loss(const at::Tensor& outputs, const at::Tensor& labels) override {
    return at::cross_entropy_loss(outputs, labels);
  }

 private:
  torch::nn::Sequential net_;
};

// The network of pytorch/examples cpp/mnist; its convolutions run in channels-last order, which is faster.
class MnistNet : public kindling::Module {
 public:
  MnistNet()
      : conv1_(register_module("conv1", torch::nn::Conv2d(1, 10, 5))),
        conv2_(register_module("conv2", torch::nn::Conv2d(10, 20, 5))),
        dropout_(register_module("conv2_drop", torch::nn::Dropout2d())),
        fc1_(register_module("fc1", torch::nn::Linear(320, 50))),
        fc2_(register_module("fc2", torch::nn::Linear(50, 10))) {
    // to(), because contiguous() treats the single input channel of conv1 as already channels-last.
    for (at::Tensor* weight : {&conv1_->weight, &conv2_->weight})
      weight->set_data(
          weight->detach().to(weight->options(), /*non_blocking=*/false, /*copy=*/false, kChannelsLast));
  }

  bool has_static_graph() const override { return true; }
  at::Tensor forward(const at::Tensor& images) override {
    at::Tensor x = at::relu(at::max_pool2d(conv1_->forward(images), 2));
    x = at::relu(at::max_pool2d(dropout_->forward(conv2_->forward(x)), 2));
    x = at::relu(fc1_->forward(x.reshape({-1, 320})));
    x = at::dropout(x, 0.5, is_training());
    return at::log_softmax(fc2_->forward(x), 1);
  }
  at::Tensor loss(const at::Tensor& outputs, const at::Tensor& labels) override {
    return at::nll_loss(outputs, labels);
  }

 private:
  torch::nn::Conv2d conv1_, conv2_;
  torch::nn::Dropout2d dropout_;
  torch::nn::Linear fc1_, fc2_;
};

// --- Data
// -----------------------------------------------------------------------------------------------------------

at::Tensor read_bytes(const std::string& name) {
  const char* root = std::getenv("KINDLING_SHARED");
  const auto path = std::filesystem::path(root != nullptr ? root : ".") / "data/mnist-10k" / name;
  if (!std::filesystem::exists(path))
    throw kindling::DataError(
        {.place = path.string(),
         .found = "no such file",
         .remedy = "set KINDLING_SHARED to the directory that contains data/mnist-10k; benchmarks/README.md "
                   "describes the files"});
  kindling::IdxArray array = kindling::read_idx(path);
  return at::from_blob(array.bytes.data(), array.shape, at::kByte).clone();
}

// {float [10000, 1, 28, 28] in 0…1, int64 [10000]}
std::vector<at::Tensor> mnist() {
  return {read_bytes("t10k-images-idx3-ubyte.gz").unsqueeze(1).to(at::kFloat).div_(255),
          read_bytes("t10k-labels-idx1-ubyte.gz").to(at::kLong)};
}

using Widths = std::vector<std::int64_t>;
const Widths kTiny{20, 64, 64, 1};

Workload mlp_case(const Widths& widths, std::vector<at::Tensor> data, const kindling::DataOptions& options) {
  return {.model = seeded<RegressionMlp>(widths),
          .data = std::make_shared<TensorData>(TensorData::Tensors{.train = std::move(data)}, options),
          .optimizer = optimizer<kindling::Adam>(kindling::AdamOptions{.lr = 1e-3}),
          .gradient_clip_val = 1.0,
          .unit = "us/step"};
}

Workload step_case(const Widths& widths, std::int64_t steps) {
  constexpr std::int64_t kBatchSize = 32;
  Workload workload = mlp_case(widths, regression(steps * kBatchSize, widths.front(), widths.back()),
                               {.batch_size = kBatchSize, .shuffle = false});
  workload.size = steps;
  return workload;
}

}  // namespace

kindling::TrainerOptions trainer_options(const Options& options, const Workload& workload) {
  return {.num_gpus = options.device == "cuda" ? 1 : 0,
          .gradient_clip_val = workload.gradient_clip_val,
          .accumulate_grad_batches = workload.accumulate_grad_batches,
          .precision = options.precision == "bf16" ? "bf16-mixed" : "32-true",
          .channels_last = workload.channels_last,
          .step_graph = options.peer.ends_with("_eager") ? "off" : "auto",
          .optimizer = workload.optimizer};
}

std::vector<at::Tensor> regression(std::int64_t n, std::int64_t features, std::int64_t outputs) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(kDataSeed);
  const at::Tensor x = at::randn({n, features}, generator);
  const at::Tensor w = at::randn({features, outputs}, generator);
  const at::Tensor noise = at::randn({n, outputs}, generator);
  const double scale = std::sqrt(static_cast<double>(features));
  return {x, at::sin(x.matmul(w) / scale) + 0.1 * noise};
}

Workload tiny_mlp(std::vector<at::Tensor> data, const kindling::DataOptions& options) {
  return mlp_case(kTiny, std::move(data), options);
}

Workload step_tiny() { return step_case(kTiny, 1280); }
Workload step_deep() { return step_case(Widths(17, 64), 320); }

namespace {

// Steps on unshuffled images, as many as fill complete batches.
Workload image_steps(std::shared_ptr<kindling::Module> model, std::vector<at::Tensor> images,
                     std::int64_t steps, std::int64_t batch_size) {
  for (at::Tensor& tensor : images) tensor = tensor.narrow(0, 0, steps * batch_size);
  return {
      .model = std::move(model),
      .data = std::make_shared<TensorData>(TensorData::Tensors{.train = std::move(images)},
                                           kindling::DataOptions{.batch_size = batch_size, .shuffle = false}),
      .optimizer = optimizer<kindling::Adam>(kindling::AdamOptions{.lr = 1e-3}),
      .size = steps,
      .unit = "us/step"};
}

std::vector<at::Tensor> mnist_often() {
  auto images = mnist();
  return {images[0].repeat({6, 1, 1, 1}), images[1].repeat({6})};
}

}  // namespace

// 156 full batches, also for two ranks.
Workload lenet() { return image_steps(seeded<LeNet>(), mnist(), 156, 64); }

Workload card_lenet() {
  Workload workload = image_steps(seeded<LeNet>(), mnist_often(), 937, 64);
  workload.gradient_clip_val = 1;
  return workload;
}

Workload card_mlp() {
  Workload workload = image_steps(seeded<ImageMlp>(), mnist_often(), 234, 256);
  workload.gradient_clip_val = 1;
  return workload;
}

kindling::DataOptions shuffled(std::int64_t batch_size) {
  return {.batch_size = batch_size, .shuffle = true, .seed = kShuffleSeed};
}

Workload fmnist_epoch() {
  const auto images = mnist();
  return {.model = seeded<ImageMlp>(),
          .data = std::make_shared<TensorData>(
              TensorData::Tensors{{images[0].repeat({6, 1, 1, 1}), images[1].repeat({6})}, images},
              shuffled(256)),
          .optimizer = optimizer<kindling::Sgd>(kindling::SgdOptions{.lr = 0.1}),
          .unit = "s/epoch"};
}

Workload cnn_mnist() {
  auto images = mnist();
  images[0] = (images[0] - 0.1307) / 0.3081;
  const std::int64_t size = images[0].size(0);
  return {.model = seeded<MnistNet>(),
          .data = std::make_shared<TensorData>(TensorData::Tensors{.train = std::move(images)}, shuffled(64)),
          .optimizer = optimizer<kindling::Sgd>(kindling::SgdOptions{.lr = 0.01, .momentum = 0.5}),
          .size = size,
          .unit = "img/s"};
}

std::vector<at::Tensor> mnist_bytes_six_times() {
  return {read_bytes("t10k-images-idx3-ubyte.gz").view({-1, 784}).repeat({6, 1}),
          read_bytes("t10k-labels-idx1-ubyte.gz").repeat({6})};
}

std::vector<at::Tensor> mnist_six_times() {
  const auto images = mnist();
  return {images[0].view({-1, 784}).repeat({6, 1}), images[1].repeat({6})};
}

}  // namespace kindling_bench
