#include "fake_accelerator.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "fake_accelerator_parts.h"

namespace fake = kindling::fake;

namespace {

using torch::Tensor;

enum class Optimizer { kSgd, kAdam, kAdamW };

struct Case {
  std::function<torch::nn::Sequential()> make_model;
  std::vector<int64_t> image;
  Optimizer optimizer = Optimizer::kAdam;
  int num_steps = 100;
};

struct Trained {
  Tensor losses;
  std::vector<Tensor> state;  // parameters, then buffers, on the CPU
};

torch::nn::Sequential make_mlp() {
  torch::nn::Sequential net;
  net->push_back(torch::nn::Flatten());
  net->push_back(torch::nn::Linear(64, 32));
  net->push_back(torch::nn::BatchNorm1d(32));
  net->push_back(torch::nn::ReLU());
  net->push_back(torch::nn::Dropout(0.3));
  net->push_back(torch::nn::Linear(32, 10));
  return net;
}

torch::nn::Sequential make_lenet() {
  torch::nn::Sequential net;
  net->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 6, 5).padding(2)));
  net->push_back(torch::nn::Sigmoid());
  net->push_back(torch::nn::AvgPool2d(torch::nn::AvgPool2dOptions(2).stride(2)));
  net->push_back(torch::nn::Conv2d(6, 16, 5));
  net->push_back(torch::nn::Sigmoid());
  net->push_back(torch::nn::AvgPool2d(torch::nn::AvgPool2dOptions(2).stride(2)));
  net->push_back(torch::nn::Flatten());
  net->push_back(torch::nn::Linear(400, 84));
  net->push_back(torch::nn::Sigmoid());
  net->push_back(torch::nn::Linear(84, 10));
  return net;
}

torch::nn::Sequential make_small_cnn() {
  torch::nn::Sequential net;
  net->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 8, 3).padding(1)));
  net->push_back(torch::nn::BatchNorm2d(8));
  net->push_back(torch::nn::ReLU());
  net->push_back(torch::nn::MaxPool2d(2));
  net->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 16, 3).padding(1).bias(false)));
  net->push_back(torch::nn::BatchNorm2d(16));
  net->push_back(torch::nn::ReLU());
  net->push_back(torch::nn::AdaptiveAvgPool2d(1));
  net->push_back(torch::nn::Flatten());
  net->push_back(torch::nn::Dropout(0.1));
  net->push_back(torch::nn::Linear(16, 10));
  return net;
}

const Case kMlp{make_mlp, {1, 8, 8}, Optimizer::kAdam, 100};
const Case kLenet{make_lenet, {1, 28, 28}, Optimizer::kAdamW, 10};
const Case kSmallCnn{make_small_cnn, {1, 8, 8}, Optimizer::kSgd, 30};

// The fused optimizers over the model's parameters, as Kindling calls them.
class FusedOptimizer {
 public:
  FusedOptimizer(Optimizer kind, std::vector<Tensor> parameters)
      : kind_(kind), parameters_(std::move(parameters)) {
    for (const Tensor& parameter : parameters_) {
      first_.push_back(torch::zeros_like(parameter));
      second_.push_back(torch::zeros_like(parameter));
      steps_.push_back(torch::zeros({}, parameter.options().requires_grad(false)));
    }
  }

  void step() {
    const torch::NoGradGuard no_grad;
    std::vector<Tensor> gradients;
    for (const Tensor& parameter : parameters_) gradients.push_back(parameter.grad());
    clip(gradients);
    for (Tensor& step : steps_) step.add_(1);
    if (kind_ == Optimizer::kSgd) {
      at::_fused_sgd_(parameters_, gradients, first_, 1e-4, 0.9, 0.05, 0.0, true, false, is_first_);
    } else if (kind_ == Optimizer::kAdam) {
      at::_fused_adam_(parameters_, gradients, first_, second_, {}, steps_, 1e-2, 0.9, 0.999, 0.0, 1e-8,
                       false, false);
    } else {
      at::_fused_adamw_(parameters_, gradients, first_, second_, {}, steps_, 1e-2, 0.9, 0.999, 0.01, 1e-8,
                        false, false);
    }
    is_first_ = false;
  }

 private:
  static void clip(std::vector<Tensor>& gradients) {
    const Tensor norm = torch::stack(at::_foreach_norm(gradients, 2)).norm();
    at::_foreach_mul_(gradients, torch::clamp_max(1.0 / (norm + 1e-6), 1.0));
  }

  Optimizer kind_;
  std::vector<Tensor> parameters_, first_, second_, steps_;
  bool is_first_ = true;
};

Trained train(const Case& job, c10::Device device) {
  constexpr int64_t kNumSamples = 96, kBatchSize = 32;
  torch::manual_seed(3);
  auto model = job.make_model();
  model->to(device);
  std::vector<int64_t> shape{kNumSamples};
  shape.insert(shape.end(), job.image.begin(), job.image.end());
  const Tensor images = torch::rand(shape).to(device);
  const Tensor labels = torch::randint(0, 10, {kNumSamples}).to(device);
  FusedOptimizer optimizer(job.optimizer, model->parameters());
  torch::manual_seed(5);
  Tensor log = torch::zeros({job.num_steps}, device);
  Tensor batch = torch::empty({0}, images.options());
  for (int step = 0; step < job.num_steps; ++step) {
    const Tensor order =
        torch::randperm(kNumSamples, torch::dtype(torch::kLong).device(device)).slice(0, 0, kBatchSize);
    batch.resize_({0});
    torch::index_select_out(batch, images, 0, order);
    for (Tensor& parameter : model->parameters()) parameter.mutable_grad() = Tensor();
    const Tensor loss =
        torch::nn::functional::cross_entropy(model->forward(batch), labels.index_select(0, order));
    loss.backward();
    optimizer.step();
    log[step].copy_(loss.detach());
  }
  Trained trained{log.cpu(), {}};
  for (const Tensor& parameter : model->parameters()) trained.state.push_back(parameter.detach().cpu());
  for (const Tensor& buffer : model->buffers()) trained.state.push_back(buffer.cpu());
  return trained;
}

void expect_bit_equal(const Trained& found, const Trained& wanted) {
  ASSERT_TRUE(wanted.losses.isfinite().all().item<bool>());
  EXPECT_TRUE(found.losses.equal(wanted.losses))
      << "largest difference " << (found.losses - wanted.losses).abs().max().item<float>();
  ASSERT_EQ(found.state.size(), wanted.state.size());
  for (size_t i = 0; i < wanted.state.size(); ++i)
    EXPECT_TRUE(found.state[i].equal(wanted.state[i])) << "tensor " << i;
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

c10::Stream new_stream(c10::Device on) {
  return c10::impl::VirtualGuardImpl(c10::DeviceType::PrivateUse1).getNewStream(on);
}

class OnDevice : public testing::TestWithParam<int> {
 protected:
  c10::Device device_ = fake::device(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Fake, OnDevice, testing::Values(0, 1));

TEST_P(OnDevice, TrainsMlpBitEqualToCpu) { expect_bit_equal(train(kMlp, device_), train(kMlp, torch::kCPU)); }

TEST_P(OnDevice, TrainsLenetBitEqualToCpu) {
  expect_bit_equal(train(kLenet, device_), train(kLenet, torch::kCPU));
}

TEST_P(OnDevice, TrainsSmallCnnBitEqualToCpu) {
  expect_bit_equal(train(kSmallCnn, device_), train(kSmallCnn, torch::kCPU));
}

TEST_P(OnDevice, TrainsOnASideStreamWithProtectedMemoryAndLateCopies) {
  const fake::ProtectMemory protection;
  const fake::LateCopies late;
  const c10::StreamGuard guard(new_stream(device_));
  Case job = kSmallCnn;
  job.num_steps = 3;
  expect_bit_equal(train(job, device_), train(job, torch::kCPU));
}

// The fused cells add the two biases in another order than the CPU's cells: the last bits differ.
template <class Recurrent>
void expect_recurrent_close(c10::Device device, Recurrent on_cpu, Recurrent on_device) {
  for (size_t i = 0; i < on_cpu->parameters().size(); ++i) {
    const torch::NoGradGuard no_grad;
    on_device->parameters()[i].copy_(on_cpu->parameters()[i]);
  }
  on_device->to(device);
  const Tensor input = torch::rand({7, 3, 5});
  const Tensor wanted = std::get<0>(on_cpu->forward(input));
  const Tensor found = std::get<0>(on_device->forward(input.to(device)));
  EXPECT_TRUE(torch::allclose(found.cpu(), wanted, 0, 1e-6));
  wanted.sum().backward();
  found.sum().backward();
  for (size_t i = 0; i < on_cpu->parameters().size(); ++i) {
    EXPECT_TRUE(
        torch::allclose(on_device->parameters()[i].grad().cpu(), on_cpu->parameters()[i].grad(), 1e-5, 1e-6));
  }
}

TEST_P(OnDevice, RunsLstmAndGru) {
  torch::manual_seed(1);
  using torch::nn::GRU, torch::nn::GRUOptions, torch::nn::LSTM, torch::nn::LSTMOptions;
  const auto lstm = [] { return LSTM(LSTMOptions(5, 4).num_layers(2).bidirectional(true)); };
  expect_recurrent_close(device_, lstm(), lstm());
  expect_recurrent_close(device_, GRU(GRUOptions(5, 4)), GRU(GRUOptions(5, 4)));
}

TEST_P(OnDevice, RunsNormsAndAttentionLikeCpu) {
  torch::manual_seed(1);
  const Tensor input = torch::rand({2, 4, 8, 16});
  const Tensor moved = input.to(device_);
  EXPECT_TRUE(torch::layer_norm(moved, {16}).cpu().equal(torch::layer_norm(input, {16})));
  EXPECT_TRUE(torch::group_norm(moved, 2).cpu().equal(torch::group_norm(input, 2)));
  const Tensor wanted = torch::scaled_dot_product_attention(input, input, input);
  EXPECT_TRUE(
      torch::allclose(torch::scaled_dot_product_attention(moved, moved, moved).cpu(), wanted, 1e-5, 1e-6));
}

TEST_P(OnDevice, DrawsTheRandomNumbersOfTheCpu) {
  const auto on = torch::device(device_);
  torch::manual_seed(9);
  const Tensor normal = torch::randn({33}), permutation = torch::randperm(50),
               dropped = torch::dropout(torch::ones({9}), 0.3, true);
  torch::manual_seed(9);
  EXPECT_TRUE(torch::randn({33}, on).cpu().equal(normal));
  EXPECT_TRUE(torch::randperm(50, on).cpu().equal(permutation));
  EXPECT_TRUE(torch::dropout(torch::ones({9}, on), 0.3, true).cpu().equal(dropped));
}

TEST_P(OnDevice, RestoresTheStateOfItsGenerator) {
  auto generator = at::globalContext().defaultGenerator(device_);
  const Tensor state = generator.get_state();
  const Tensor first = torch::rand({5}, device_).cpu();
  generator.set_state(state);
  EXPECT_TRUE(torch::rand({5}, device_).cpu().equal(first));
}

TEST_P(OnDevice, RefusesTheCpusGenerator) {
  const auto text =
      error_of([&] { torch::empty({2}, device_).bernoulli_(0.5, at::detail::getDefaultCPUGenerator()); });
  EXPECT_NE(text.find("Expected a 'fake' device type for generator but found 'cpu'"), std::string::npos)
      << text;
}

TEST_P(OnDevice, KeepsViewsOnTheSameBytes) {
  Tensor whole = torch::zeros({2, 3}, device_);
  whole.t().select(0, 1).fill_(4);
  whole.view({6}).unfold(0, 1, 5).add_(1);
  EXPECT_TRUE(whole.cpu().equal(torch::tensor({{1.f, 4.f, 0.f}, {0.f, 4.f, 1.f}})));
  EXPECT_EQ(whole.t().storage().unsafeGetStorageImpl(), whole.storage().unsafeGetStorageImpl());
}

TEST_P(OnDevice, GrowsAnOutArgument) {
  Tensor out = torch::empty({0}, device_);
  torch::add_out(out, torch::ones({2, 2}, device_), torch::ones({2}, device_));
  EXPECT_EQ(out.device(), device_);
  EXPECT_TRUE(out.cpu().equal(torch::full({2, 2}, 2.f)));
}

TEST_P(OnDevice, CastsUnderAutocast) {
  const auto type = c10::DeviceType::PrivateUse1;
  at::autocast::set_autocast_dtype(type, at::kBFloat16);
  at::autocast::set_autocast_enabled(type, true);
  const Tensor weight = torch::rand({4, 4}, device_);
  const Tensor product = torch::mm(weight, weight), softmax = product.softmax(0);
  at::autocast::set_autocast_enabled(type, false);
  at::autocast::clear_cache();
  EXPECT_EQ(product.scalar_type(), torch::kBFloat16);
  EXPECT_EQ(softmax.scalar_type(), torch::kFloat);
  EXPECT_TRUE(
      product.cpu().equal(torch::mm(weight.cpu().to(torch::kBFloat16), weight.cpu().to(torch::kBFloat16))));
}

TEST_P(OnDevice, WorksInInferenceMode) {
  const c10::InferenceMode inference;
  const Tensor weight = torch::ones({3, 2}, device_);
  EXPECT_TRUE(torch::linear(weight, weight).cpu().equal(torch::full({3, 3}, 2.f)));
}

TEST(Fake, IsTheAcceleratorWithTwoDevices) {
  EXPECT_EQ(at::accelerator::getAccelerator(), c10::DeviceType::PrivateUse1);
  EXPECT_EQ(at::accelerator::deviceCount(), 2);
  EXPECT_EQ(fake::device(1).str(), "fake:1");
  EXPECT_EQ(c10::Device("fake:1"), fake::device(1));
  EXPECT_EQ(torch::zeros({1}, c10::Device("fake")).device(), fake::device(0));
  const c10::DeviceGuard guard(fake::device(1));
  EXPECT_EQ(at::accelerator::getDeviceIndex(), 1);
  EXPECT_EQ(torch::zeros({1}, c10::Device("fake")).device(), fake::device(1));
  EXPECT_NE(error_of([] { torch::zeros({1}, fake::device(2)); }).find("fake:2"), std::string::npos);
}

TEST(Fake, InstallsOnce) {
  fake::install();
  EXPECT_EQ(at::accelerator::deviceCount(), 2);
}

TEST(Fake, TrainsOnTwoDevicesInTwoThreads) {
  const auto perceptron = [](c10::Device device) {  // no random numbers: seeding is process-wide
    torch::NoGradGuard no_grad;
    Tensor weight = torch::linspace(-1, 1, 64).view({8, 8}).to(device);
    const Tensor input = torch::linspace(0, 1, 32).view({4, 8}).to(device);
    for (int i = 0; i < 200; ++i) {
      torch::AutoGradMode grad(true);
      Tensor leaf = weight.detach().requires_grad_();
      torch::mm(input, leaf).tanh().pow(2).sum().backward();
      torch::NoGradGuard update;
      weight.add_(leaf.grad(), -0.01);
    }
    return weight.cpu();
  };
  const Tensor alone = perceptron(torch::kCPU);
  std::array<Tensor, 2> together;
  {
    const fake::ProtectMemory protection;
    std::thread first([&] { together[0] = perceptron(fake::device(0)); });
    std::thread second([&] { together[1] = perceptron(fake::device(1)); });
    first.join();
    second.join();
  }
  EXPECT_TRUE(together[0].equal(alone));
  EXPECT_TRUE(together[1].equal(alone));
}

TEST(MixedDevices, AreRefusedWithBothNames) {
  const Tensor here = torch::ones({2, 2}, fake::device(0)), there = torch::ones({2, 2}, fake::device(1));
  const std::string start = "Expected all tensors to be on the same device, but found at least two devices, ";
  EXPECT_EQ(error_of([&] { torch::mm(here, there); }).find(start + "fake:0 and fake:1!"), 0);
  EXPECT_EQ(error_of([&] { torch::mm(here, torch::ones({2, 2})); }).find(start + "fake:0 and cpu!"), 0);
  EXPECT_EQ(error_of([&] { torch::ones({2, 2}) + there; }).find(start + "fake:1 and cpu!"), 0);
  EXPECT_EQ(error_of([&] { torch::cat({here, there}); }).find(start + "fake:0 and fake:1!"), 0);
  EXPECT_EQ(error_of([&] { torch::ones({}).add_(here[0][0]); }).find(start + "fake:0 and cpu!"), 0);
}

TEST(MixedDevices, AllowNumbersAndIndicesFromTheCpu) {
  const Tensor here = torch::tensor({1.f, 2.f, 3.f}).to(fake::device(1));
  EXPECT_TRUE((here * torch::tensor(2.f)).cpu().equal(torch::tensor({2.f, 4.f, 6.f})));
  fake::reset_counts();
  EXPECT_TRUE(here.index({torch::tensor({2, 0})}).cpu().equal(torch::tensor({3.f, 1.f})));
  EXPECT_EQ(fake::counts().host_to_device_copies, 1);
  EXPECT_EQ(fake::counts().host_to_device_bytes, 16);
}

// Counts LibTorch's warnings while it lives.
class Warnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override { ++count; }
  int count = 0;
};

TEST(Losses, MatchTheCpuWithoutWarnings) {
  Warnings warnings;
  const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
  const Tensor host = torch::linspace(-1, 1, 12).view({3, 4}), target = torch::zeros({3, 4});
  const Tensor here = host.to(fake::device(0)), there = target.to(fake::device(0));
  EXPECT_TRUE(torch::mse_loss(here, there).cpu().equal(torch::mse_loss(host, target)));
  EXPECT_TRUE(torch::smooth_l1_loss(here, there).cpu().equal(torch::smooth_l1_loss(host, target)));
  EXPECT_EQ(warnings.count, 0);
}

TEST(Counts, IncludeCopiesAndTheirBytes) {
  const Tensor host = torch::rand({10});
  fake::reset_counts();
  const Tensor here = host.to(fake::device(0));
  EXPECT_EQ(fake::counts().host_to_device_copies, 1);
  EXPECT_EQ(fake::counts().host_to_device_bytes, 40);
  EXPECT_EQ(fake::counts().blocking_host_to_device_copies, 1);
  const Tensor there = here.to(fake::device(1)), twice = there.clone();
  EXPECT_EQ(fake::counts().device_to_device_copies, 2);
  EXPECT_EQ(fake::counts().device_to_device_bytes, 80);
  EXPECT_EQ(fake::counts().host_waits(), 0);
  EXPECT_TRUE(twice.cpu().equal(host));
  EXPECT_EQ(fake::counts().device_to_host_copies, 1);
  EXPECT_EQ(fake::counts().device_to_host_bytes, 40);
  EXPECT_EQ(fake::counts().host_waits(), 1);
  EXPECT_TRUE((here + 1).device() == fake::device(0));  // a result is not a copy
  EXPECT_EQ(fake::counts().host_to_device_copies, 1);
}

TEST(Counts, IncludeAsynchronousPinnedCopies) {
  fake::reset_counts();
  const Tensor pinned = torch::empty({10}, torch::TensorOptions().pinned_memory(true)).fill_(3);
  EXPECT_TRUE(pinned.is_pinned());
  EXPECT_TRUE(torch::rand({3}).pin_memory().is_pinned());
  EXPECT_FALSE(torch::rand({3}).is_pinned());
  EXPECT_EQ(fake::counts().pinned_allocations, 2);
  EXPECT_EQ(fake::counts().pinned_live_bytes, 40);
  const Tensor here = pinned.to(fake::device(0), /*non_blocking=*/true);
  Tensor back = torch::empty({10}, torch::TensorOptions().pinned_memory(true));
  back.copy_(here, /*non_blocking=*/true);
  EXPECT_EQ(fake::counts().host_to_device_copies, 1);
  EXPECT_EQ(fake::counts().device_to_host_copies, 1);
  EXPECT_EQ(fake::counts().blocking_host_to_device_copies, 0);
  EXPECT_EQ(fake::counts().host_waits(), 0);
  EXPECT_TRUE(back.equal(pinned));
  EXPECT_TRUE(here.to(torch::kCPU, /*non_blocking=*/true).is_pinned());  // LibTorch pins the target then
  EXPECT_EQ(fake::counts().host_waits(), 0);
  torch::empty({10}).copy_(here, /*non_blocking=*/true);
  EXPECT_EQ(fake::counts().host_waits(), 1);
}

TEST(Counts, IncludeHostReads) {
  const Tensor here = torch::tensor({0.f, 2.f, 0.f}).to(fake::device(0));
  fake::reset_counts();
  EXPECT_EQ(here[1].item<float>(), 2);
  EXPECT_FALSE(here[0].is_nonzero());
  EXPECT_EQ(fake::counts().item_reads, 2);
  EXPECT_EQ(fake::counts().device_to_host_copies, 0);
  EXPECT_EQ(here.nonzero().size(0), 1);
  EXPECT_EQ(here.masked_select(here > 1).size(0), 1);
  EXPECT_EQ(here.index({here > 1}).size(0), 1);
  EXPECT_TRUE(here.equal(here));
  EXPECT_EQ(std::get<0>(at::_unique2(here)).size(0), 2);
  EXPECT_EQ(fake::counts().data_dependent_ops, 5);
  here.index_put_({here > 1}, torch::tensor(1.f));  // a masked fill: the number of elements is not needed
  EXPECT_EQ(fake::counts().data_dependent_ops, 5);
  EXPECT_EQ(fake::counts().host_waits(), 7);
  EXPECT_EQ(fake::operator_calls("aten::nonzero"), 1);
  EXPECT_EQ(fake::operator_calls("aten::mm"), 0);
}

TEST(Counts, IncludeSynchronizations) {
  fake::reset_counts();
  at::accelerator::synchronizeDevice(1);
  const auto stream = at::accelerator::getCurrentStream(0);
  stream.synchronize();
  c10::Event event(c10::DeviceType::PrivateUse1);
  event.record(stream);
  EXPECT_TRUE(event.query());
  event.block(stream);
  event.synchronize();
  EXPECT_EQ(fake::counts().device_waits, 1);
  EXPECT_EQ(fake::counts().stream_waits, 1);
  EXPECT_EQ(fake::counts().event_waits, 1);
  EXPECT_EQ(fake::counts().host_waits(), 3);
}

TEST(Counts, IncludeLiveAndPeakBytes) {
  fake::reset_counts();
  const auto before = fake::counts();
  {
    const Tensor one = torch::empty({100}, fake::device(1)), two = torch::empty({50}, fake::device(1));
    EXPECT_EQ(fake::counts().live_bytes[1] - before.live_bytes[1], 600);
  }
  EXPECT_EQ(fake::counts().live_bytes, before.live_bytes);
  EXPECT_EQ(fake::counts().peak_bytes[1] - before.live_bytes[1], 600);
  EXPECT_EQ(fake::counts().peak_bytes[0], before.live_bytes[0]);
  EXPECT_EQ(at::accelerator::getDeviceStats(1).allocated_bytes[0].peak, fake::counts().peak_bytes[1]);
  at::accelerator::resetPeakStats(1);
  EXPECT_EQ(fake::counts().peak_bytes, before.live_bytes);
  at::accelerator::emptyCache();
  EXPECT_GT(at::accelerator::getMemoryInfo(0).second, 0);
}

TEST(ProtectedMemoryDeathTest, CrashesOnARawReadOfTheHost) {
  const Tensor here = torch::ones({4}, fake::device(0));
  EXPECT_EQ(here.const_data_ptr<float>()[0], 1);  // in reach as long as it is not protected
  const auto read = [&] {
    const fake::ProtectMemory protection;
    if (here.const_data_ptr<float>()[0] == 1) std::exit(0);
  };
  EXPECT_DEATH(read(), "");
}

TEST(ProtectedMemory, IsAccessibleToKernelsAndCopies) {
  const fake::ProtectMemory protection;
  const Tensor here = torch::ones({4}, fake::device(0));
  EXPECT_EQ((here + here).sum().item<float>(), 8);
  EXPECT_TRUE(here.cpu().equal(torch::ones({4})));
}

struct Staging {
  Tensor pinned = torch::ones({4}, torch::TensorOptions().pinned_memory(true));
  Tensor device = torch::zeros({4}, fake::device(0));
  c10::Event event{c10::DeviceType::PrivateUse1};

  void send() {
    device.copy_(pinned, /*non_blocking=*/true);
    event.record(at::accelerator::getCurrentStream(0));
  }
};

TEST(LateCopies, ShowAStagingBufferThatIsReusedTooEarly) {
  const fake::LateCopies late;
  Staging staging;
  staging.send();
  EXPECT_FALSE(staging.event.query());
  staging.pinned.fill_(7);
  EXPECT_TRUE(staging.device.cpu().equal(torch::full({4}, 7.f)));
}

TEST(LateCopies, AreDoneOnceTheirEventIs) {
  const fake::LateCopies late;
  Staging staging;
  staging.send();
  staging.event.synchronize();
  EXPECT_TRUE(staging.event.query());
  staging.pinned.fill_(7);
  EXPECT_TRUE(staging.device.cpu().equal(torch::ones({4})));
}

TEST(LateCopies, AreDoneAtTheThirdQuery) {
  const fake::LateCopies late;
  Staging staging;
  staging.send();
  EXPECT_FALSE(staging.event.query());
  EXPECT_FALSE(staging.event.query());
  EXPECT_TRUE(staging.event.query());
  staging.pinned.fill_(7);
  EXPECT_TRUE(staging.device.cpu().equal(torch::ones({4})));
}

TEST(LateCopies, KeepTheOrderOfTheirStream) {
  const fake::LateCopies late;
  Staging staging;
  staging.send();
  const Tensor doubled = staging.device * 2;  // uses the copy, so that it is done before
  staging.pinned.fill_(7);
  EXPECT_TRUE(doubled.cpu().equal(torch::full({4}, 2.f)));
  EXPECT_TRUE(staging.device.cpu().equal(torch::ones({4})));
}

TEST(LateCopies, LeaveHostMemoryAloneUntilTheWait) {
  const fake::LateCopies late;
  Tensor preview = torch::zeros({2}, torch::TensorOptions().pinned_memory(true));
  Tensor log = torch::ones({2}, fake::device(0));
  preview.copy_(log, /*non_blocking=*/true);
  EXPECT_TRUE(preview.equal(torch::zeros({2})));
  log.fill_(9);  // after the copy in the order of the stream
  EXPECT_TRUE(preview.equal(torch::ones({2})));
}

TEST(LateCopies, DoNotHoldTheirStagingBuffer) {
  const fake::LateCopies late;
  Staging staging;
  staging.send();
  EXPECT_EQ(staging.pinned.storage().use_count(), 1);
}

TEST(LateCopies, AreDoneBeforeTheirStagingBufferIsFreed) {
  const fake::LateCopies late;
  Staging staging;
  staging.send();
  staging.pinned = Tensor();
  EXPECT_TRUE(staging.device.cpu().equal(torch::ones({4})));
}

TEST(LateCopies, AreCarriedOutWhenTheModeEnds) {
  Staging staging;
  {
    const fake::LateCopies late;
    staging.send();
  }
  staging.pinned.fill_(7);
  EXPECT_TRUE(staging.device.cpu().equal(torch::ones({4})));
}

TEST(LateCopies, FillABatchWhileAnotherIsInUse) {
  const fake::LateCopies late;
  std::array<Staging, 2> staging;
  const c10::Stream compute = at::accelerator::getCurrentStream(0), copies = new_stream(fake::device(0));
  for (int step = 0; step < 6; ++step) {
    Staging& slot = staging[step % 2];
    slot.event.synchronize();  // the copy of two steps ago has left the buffer
    slot.pinned.fill_(step);
    at::accelerator::setCurrentStream(copies);
    slot.send();
    at::accelerator::setCurrentStream(compute);
    slot.event.block(compute);
    EXPECT_EQ(slot.device.sum().item<float>(), 4 * step);
  }
}

TEST(LateCopies, AreNotSeenByAnotherStreamThatDoesNotWait) {
  const fake::LateCopies late;
  Staging staging;
  const c10::Stream copies = new_stream(fake::device(0));
  {
    const c10::StreamGuard guard(copies);
    staging.send();
  }
  EXPECT_TRUE((staging.device + 0).cpu().equal(torch::zeros({4})));
  staging.event.block(at::accelerator::getCurrentStream(0));
  EXPECT_TRUE((staging.device + 0).cpu().equal(torch::ones({4})));
}

// Work on a side stream, captured as a graph.
struct Captured {
  explicit Captured(const std::function<void()>& work) {
    const c10::StreamGuard guard(stream);
    jobs.begin();
    failure = error_of(work);
    if (const std::string at_end = error_of([&] { jobs.end(); }); at_end != failure) failure += at_end;
  }
  c10::Stream stream = new_stream(fake::device(0));
  fake::RecordedJobs jobs;
  std::string failure;
};

TEST(Graphs, ComputeNothingDuringCapture) {
  Tensor x = torch::ones({3}, fake::device(0)), sum;
  auto generator = at::globalContext().defaultGenerator(fake::device(0));
  const Tensor state = generator.get_state();
  fake::reset_counts();
  Captured graph([&] {
    x.add_(1);
    sum = x.sum() + torch::rand({}, fake::device(0)) * 0;
  });
  EXPECT_EQ(graph.failure, "no error");
  EXPECT_EQ(fake::counts().launches, 0);
  EXPECT_TRUE(x.cpu().equal(torch::ones({3})));
  EXPECT_TRUE(std::isnan(sum.item<float>()));
  EXPECT_TRUE(generator.get_state().equal(state));
}

TEST(Graphs, WorkOnTheSameMemoryInEveryReplay) {
  Tensor x = torch::ones({3}, fake::device(0)), doubled, drawn;
  Captured graph([&] {
    x.add_(1);
    doubled = x.view({3, 1}).t() * 2;
    drawn = torch::rand({2}, fake::device(0));
  });
  torch::manual_seed(1);
  const Tensor expected = torch::rand({2}, fake::device(0)).cpu();
  torch::manual_seed(1);
  fake::reset_counts();
  graph.jobs.replay();
  EXPECT_EQ(fake::counts().launches, 1);
  EXPECT_EQ(fake::counts().graph_replays, 1);
  EXPECT_TRUE(drawn.cpu().equal(expected));
  graph.jobs.replay();
  EXPECT_TRUE(doubled.cpu().equal(torch::full({1, 3}, 6.f)));
  EXPECT_FALSE(drawn.cpu().equal(expected));
  EXPECT_TRUE(x.cpu().equal(torch::full({3}, 3.f)));
}

TEST(Graphs, ComputeGradientsOnOtherThreads) {
  Tensor weight = torch::full({2}, 3.f, fake::device(0)).requires_grad_(), gradient;
  Captured graph([&] {
    (weight * weight).sum().backward();
    gradient = weight.grad();
  });
  EXPECT_EQ(graph.failure, "no error");
  graph.jobs.replay();
  EXPECT_TRUE(gradient.cpu().equal(torch::full({2}, 6.f)));
}

TEST(Graphs, DoNotKeepTheTensorsThatTheyRead) {
  Tensor x = torch::ones({1000}, fake::device(0)), sum;
  Captured graph([&] { sum = x.sum(); });
  const auto before = fake::counts().live_bytes[0];
  x = Tensor();
  EXPECT_EQ(before - fake::counts().live_bytes[0], 4000);
}

TEST(Graphs, RefuseHostWaits) {
  const Tensor x = torch::ones({3}, fake::device(0)), host = torch::ones({3});
  c10::Event before(c10::DeviceType::PrivateUse1);
  before.record(at::accelerator::getCurrentStream(0));
  const std::vector<std::function<void()>> works{
      [&] { x.sum().item<float>(); },
      [&] { x.nonzero(); },
      [&] { x.cpu(); },
      [&] { host.to(fake::device(0)); },
      [&] { x.index({torch::tensor({1})}); },
      [&] { at::accelerator::synchronizeDevice(0); },
      [&] { at::accelerator::getCurrentStream(0).synchronize(); },
      [&] { before.synchronize(); },
      [&] { before.block(at::accelerator::getCurrentStream(0)); },
      [&] {
        const c10::StreamGuard guard(c10::Stream(c10::Stream::DEFAULT, fake::device(0)));
        x.sum();
      }};
  for (std::size_t i = 0; i < works.size(); ++i) {
    const Captured graph(works[i]);
    EXPECT_NE(graph.failure.find("not permitted when stream is capturing"), std::string::npos) << i;
    EXPECT_NE(graph.failure.find("due to a previous error during capture"), std::string::npos) << i;
  }
  EXPECT_EQ(x.sum().item<float>(), 3);
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  fake::install();
  return RUN_ALL_TESTS();
}
