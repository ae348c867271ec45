// The peer "bare": plain LibTorch training loops in the style of pytorch/examples cpp/mnist. Cases, weights,
// batches, options and JSON lines are those of ../run_peer.py.

#include <ATen/autocast_mode.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common.h"

namespace data = torch::data;
namespace F = torch::nn::functional;

constexpr uint64_t kShuffleSeed = 1000;

// --- Data

// RandomSampler with an order that depends only on the number of the epoch.
class EpochShuffle : public data::samplers::Sampler<> {
 public:
  explicit EpochShuffle(int64_t size) : size_(size) {}

  void reset(std::optional<size_t> = std::nullopt) override {
    order_ = torch::randperm(size_, at::make_generator<at::CPUGeneratorImpl>(kShuffleSeed + epoch_++));
    index_ = 0;
  }

  std::optional<std::vector<size_t>> next(size_t batch_size) override {
    if (index_ == size_) return std::nullopt;
    const int64_t end = std::min<int64_t>(size_, index_ + batch_size);
    const auto* indices = order_.const_data_ptr<int64_t>();
    std::vector<size_t> batch(indices + index_, indices + end);
    index_ = end;
    return batch;
  }

  void save(torch::serialize::OutputArchive&) const override {}
  void load(torch::serialize::InputArchive&) override {}

 private:
  int64_t size_, index_ = 0;
  uint64_t epoch_ = 0;
  Tensor order_;
};

// Tensors in memory that are read sample by sample, as datasets::MNIST does.
struct InMemory : data::Dataset<InMemory> {
  InMemory(Tensor images_, Tensor targets_) : images(images_), targets(targets_) {}
  Batch get(size_t i) override { return {images[i], targets[i]}; }
  std::optional<size_t> size() const override { return images.size(0); }
  Tensor images, targets;
};

using MNIST = data::datasets::MNIST;
MNIST mnist() { return MNIST(DATA_DIR, MNIST::Mode::kTest); }

InMemory mnist_60k() {
  const auto set = mnist();
  return {set.images().repeat({6, 1, 1, 1}), set.targets().repeat({6})};
}

auto shuffled_loader(InMemory set, size_t batch_size) {
  const EpochShuffle sampler(*set.size());
  return data::make_data_loader(set.map(data::transforms::Stack<>()), sampler, batch_size);
}

// --- Models

struct MnistNetImpl : nn::Module {
  MnistNetImpl()
      : conv1(nn::Conv2dOptions(1, 10, /*kernel_size=*/5)),
        conv2(nn::Conv2dOptions(10, 20, /*kernel_size=*/5)),
        fc1(320, 50),
        fc2(50, 10) {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("conv2_drop", conv2_drop);
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }

  Tensor forward(Tensor x) {
    x = torch::relu(torch::max_pool2d(conv1->forward(x), 2));
    x = torch::relu(torch::max_pool2d(conv2_drop->forward(conv2->forward(x)), 2));
    x = x.view({-1, 320});
    x = torch::relu(fc1->forward(x));
    x = torch::dropout(x, /*p=*/0.5, /*train=*/is_training());
    return torch::log_softmax(fc2->forward(x), /*dim=*/1);
  }

  nn::Conv2d conv1;
  nn::Conv2d conv2;
  nn::Dropout2d conv2_drop;
  nn::Linear fc1;
  nn::Linear fc2;
};
TORCH_MODULE(MnistNet);

struct FlatMlpImpl : nn::Module {
  FlatMlpImpl() : net(register_module("net", mlp({784, 256, 10}))) {}
  Tensor forward(const Tensor& x) { return net->forward(x.flatten(1)); }
  nn::Sequential net;
};
TORCH_MODULE(FlatMlp);

// --- Training

using LossFunction = std::function<Tensor(const Tensor&, const Tensor&)>;

Tensor mse(const Tensor& output, const Tensor& target) { return F::mse_loss(output, target); }
Tensor cross_entropy(const Tensor& output, const Tensor& target) { return F::cross_entropy(output, target); }
Tensor nll(const Tensor& output, const Tensor& target) { return F::nll_loss(output, target); }

// Casts to bfloat16 during its lifetime.
struct Autocast {
  explicit Autocast(bool on) : on(on) {
    if (on) at::autocast::set_autocast_enabled(at::kCPU, true);
  }
  ~Autocast() {
    if (!on) return;
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
  bool on;
};

template <typename Net, typename Loader>
double train_epoch(Net& net, Loader& loader, torch::optim::Optimizer& optimizer,
                   const LossFunction& loss_function, double clip = 0, bool bf16 = false) {
  net->train();
  double total = 0;
  int64_t count = 0;
  for (auto& batch : loader) {
    optimizer.zero_grad();
    Tensor loss;
    {
      Autocast autocast(bf16);
      loss = loss_function(net->forward(batch.data), batch.target);
    }
    const float value = loss.item<float>();
    AT_ASSERT(!std::isnan(value));
    loss.backward();
    if (clip > 0) nn::utils::clip_grad_norm_(net->parameters(), clip);
    optimizer.step();
    total += value * batch.data.size(0);
    count += batch.data.size(0);
  }
  return total / count;
}

template <typename Net, typename Loader>
std::pair<double, double> validate(Net& net, Loader& loader, const LossFunction& loss_function) {
  torch::NoGradGuard no_grad;
  net->eval();
  double loss = 0;
  int64_t correct = 0, count = 0;
  for (auto& batch : loader) {
    const auto output = net->forward(batch.data);
    const int64_t size = batch.data.size(0);
    loss += loss_function(output, batch.target).template item<float>() * size;
    correct += output.argmax(1).eq(batch.target).sum().template item<int64_t>();
    count += size;
  }
  return {loss / count, static_cast<double>(correct) / count};
}

void step_case(const Args& args, const StepCase& step_case) {
  auto batches = batches_of(step_case);
  auto net = mlp(step_case.widths);
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(1e-3));
  Clock clock(args);
  double loss = 0;
  for (int round = 0; round < clock.rounds(); ++round) {
    clock.tick();
    loss = train_epoch(net, batches, optimizer, mse, /*clip=*/1.0);
  }
  clock.tick();
  report_times(args, clock, "us/step", step_case.steps, {.final_loss = loss});
}

void step_tiny(const Args& args) { step_case(args, kStepTiny); }
void step_deep(const Args& args) { step_case(args, kStepDeep); }

void fmnist_epoch(const Args& args) {
  auto train_loader = shuffled_loader(mnist_60k(), 256);
  auto valid_loader = data::make_data_loader<data::samplers::SequentialSampler>(
      mnist().map(data::transforms::Stack<>()), 256);
  FlatMlp net;
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1));
  Clock clock(args);
  double loss = 0;
  for (int round = 0; round < clock.rounds(); ++round) {
    clock.tick();
    loss = train_epoch(net, *train_loader, optimizer, cross_entropy);
    validate(net, *valid_loader, cross_entropy);
  }
  clock.tick();
  report_times(args, clock, "s/epoch", 1, {.final_loss = loss});
}

void cnn_mnist(const Args& args) {
  const auto set = mnist();
  const auto images = (set.images() - 0.1307) / 0.3081;
  auto loader = shuffled_loader({images, set.targets()}, 64);
  torch::manual_seed(kModelSeed);
  MnistNet net;
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.01).momentum(0.5));
  Clock clock(args);
  double loss = 0;
  for (int round = 0; round < clock.rounds(); ++round) {
    clock.tick();
    loss = train_epoch(net, *loader, optimizer, nll, 0, args.precision == "bf16");
  }
  clock.tick();
  const Labels labels{.final_loss = loss};
  auto cpu = clock.cpu(), rate = clock.wall();
  for (auto& t : cpu) t *= 1e6 / images.size(0);
  for (auto& t : rate) t = images.size(0) / t;
  report(args, "cpu", "us/img", cpu, labels);
  report(args, "wall", "img/s", rate, labels);
}

// --- Parts

template <typename Set>
void feed(const Args& args, Set set, size_t workers, const std::string& peer) {
  const auto n = static_cast<int64_t>(*set.size());
  const auto options = data::DataLoaderOptions().batch_size(256).workers(workers);
  auto loader = data::make_data_loader(std::move(set), EpochShuffle(n), options);
  Clock clock(args);
  for (int round = 0; round < clock.rounds(); ++round) {
    clock.tick();
    int64_t count = 0;
    for (auto& batch : *loader) count += batch.data.size(0);
    TORCH_CHECK(count == n);
  }
  clock.tick();
  report_times(args, clock, "us/sample", n, {.peer = peer});
}

void data_feed(const Args& args) {
  auto set = mnist_60k();
  set.images = set.images.view({-1, 784});
  const data::transforms::Stack<> stack;
  feed(args, set.map(stack), 0, "bare");
  feed(args, set.map(stack), 2, "bare_w2");
  feed(args, set.map(data::transforms::Normalize<>(0.1307, 0.3081)).map(stack), 0, "bare_normalize");
}

void optim_only(const Args& args) {
  using Shapes = std::vector<std::vector<int64_t>>;
  Shapes small{{64, 20}, {64}};
  for (int i = 0; i < 15; ++i) small.insert(small.end(), {{64, 64}, {64}});
  struct Group {
    std::string name;
    Shapes shapes;
    int steps;
  };
  const std::vector<Group> groups{{"small32", small, 300},
                                  {"mid300", Shapes(300, {64, 64}), 30},
                                  {"large4", Shapes(4, {1024, 1024}), 10}};
  using Parameters = std::vector<Tensor>;
  using Make = std::function<std::unique_ptr<torch::optim::Optimizer>(Parameters)>;
  namespace optim = torch::optim;
  const std::vector<std::pair<std::string, Make>> optimizers{
      {"adam", [](Parameters p) { return std::make_unique<optim::Adam>(p, optim::AdamOptions(1e-3)); }},
      {"adamw", [](Parameters p) { return std::make_unique<optim::AdamW>(p, optim::AdamWOptions(1e-3)); }},
      {"sgd",
       [](Parameters p) { return std::make_unique<optim::SGD>(p, optim::SGDOptions(1e-2).momentum(0.9)); }}};
  for (const auto& [group, shapes, steps] : groups) {
    for (const auto& [name, make] : optimizers) {
      torch::manual_seed(kModelSeed);
      Parameters parameters;
      for (const auto& shape : shapes) parameters.push_back(torch::randn(shape).requires_grad_());
      for (auto& p : parameters) p.mutable_grad() = torch::randn_like(p);
      auto optimizer = make(parameters);
      Clock clock(args);
      for (int round = 0; round < clock.rounds(); ++round) {
        clock.tick();
        for (int step = 0; step < steps; ++step) optimizer->step();
      }
      clock.tick();
      report_times(args, clock, "us/step", steps, {.variant = name + "/" + group});
    }
  }
}

void first_step() {
  auto batches = batches_of(kStepTiny);
  batches.resize(1);
  auto net = mlp(kStepTiny.widths);
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(1e-3));
  train_epoch(net, batches, optimizer, mse, /*clip=*/1.0);
  std::cout << cpu_seconds() << std::endl;
}

// Starts fresh processes and times each from its start to the end of its first step of step_tiny.
void cold_start(const Args& args) {
  const std::string command = std::filesystem::read_symlink("/proc/self/exe").string() +
                              " --case cold_start --first-step --threads " + std::to_string(args.threads);
  Clock clock(args);
  std::vector<double> cpu, wall;
  for (int round = 0; round < clock.rounds(); ++round) {
    clock.tick();
    const double start = wall_seconds();
    FILE* process = popen(command.c_str(), "r");
    double seconds = 0;
    TORCH_CHECK(process && std::fscanf(process, "%lf", &seconds) == 1, "first step failed");
    if (round > 0) {
      wall.push_back(wall_seconds() - start);
      cpu.push_back(seconds);
    }
    pclose(process);
  }
  clock.tick();
  report(args, "cpu", "s", cpu, {});
  report(args, "wall", "s", wall, {});
}

int main(int argc, char** argv) {
  const Args args = parse(argc, argv);
  torch::set_num_threads(args.threads);
  if (args.first_step) {
    first_step();
    return 0;
  }
  const std::map<std::string, void (*)(const Args&)> cases{
      {"step_tiny", step_tiny},  {"step_deep", step_deep}, {"fmnist_epoch", fmnist_epoch},
      {"cnn_mnist", cnn_mnist},  {"data_feed", data_feed}, {"optim_only", optim_only},
      {"cold_start", cold_start}};
  const auto found = cases.find(args.name);
  TORCH_CHECK(found != cases.end(), "unknown case '", args.name, "'");
  found->second(args);
}
