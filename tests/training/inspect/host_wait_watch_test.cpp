#include "training/inspect/host_wait_watch.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <string>
#include <typeinfo>
#include <vector>

#include "kindling/base/log.h"
#include "kindling/data/synthetic_regression.h"
#include "kindling/models/linear_regression.h"
#include "kindling/optim/sgd.h"
#include "kindling/training/trainer.h"

namespace kindling {
namespace {

// Of the code that is called as the training step here; empty: it has not waited.
std::string found_by(const HostWaitWatch& watch) {
  return watch.found().empty() ? "" : watch.found().at(0).op;
}

TEST(HostWaitWatch, NamesTheFirstOperatorThatWaits) {
  const at::Tensor x = at::ones({3});
  const HostCaller caller(HostCaller::kTrainingStep);
  const HostWaitWatch watch(cpu());
  (void)(x + x).sum();
  EXPECT_EQ(found_by(watch), "");
  (void)x.nonzero();
  (void)x.sum().item<float>();
  EXPECT_EQ(found_by(watch), "aten::nonzero");
}

TEST(HostWaitWatch, NamesTheFirstOperatorOfEachCaller) {
  const at::Tensor x = at::ones({1});
  const HostWaitWatch watch(cpu());
  (void)x.item<float>();  // the library's
  {
    const HostCaller caller(HostCaller::kTrainingStep);
    (void)x.equal(x);
    (void)x.item<float>();
    const HostCaller library(nullptr);
    (void)x.nonzero();
  }
  const HostCaller caller(HostCaller::kCallback, &typeid(int));
  (void)x.nonzero();
  ASSERT_EQ(watch.found().size(), 2U);
  EXPECT_EQ(watch.found()[0].op, "aten::equal");
  EXPECT_EQ(watch.found()[0].caller, (HostCaller::Name{HostCaller::kTrainingStep}));
  EXPECT_EQ(watch.found()[1].op, "aten::nonzero");
  EXPECT_EQ(watch.found()[1].caller, (HostCaller::Name{HostCaller::kCallback, &typeid(int)}));
}

// On an accelerator these lie on the host, too.
TEST(HostWaitWatch, IsSilentAboutTensorsThatStayOnTheHost) {
  const at::Tensor lengths = at::tensor({3, 2}, at::kLong), x = at::ones({2, 3, 1});
  const HostCaller caller(HostCaller::kTrainingStep);
  const HostWaitWatch watch(cpu(), {lengths});
  (void)lengths.max().add(1).item<std::int64_t>();
  (void)lengths[0].item<std::int64_t>();
  const auto packed = at::_pack_padded_sequence(x, lengths, /*batch_first=*/true);
  (void)std::get<1>(packed)[0].item<std::int64_t>();
  EXPECT_EQ(found_by(watch), "");
  (void)std::get<0>(packed).sum().item<float>();
  EXPECT_EQ(found_by(watch), "aten::item");
}

TEST(HostWaitWatch, GoesOnAfterAnInnerOne) {
  const HostCaller caller(HostCaller::kTrainingStep);
  const HostWaitWatch outer(cpu());
  { const HostWaitWatch inner(cpu()); }
  (void)at::ones({1}).item<float>();
  EXPECT_EQ(found_by(outer), "aten::item");
}

struct WaitingCall {
  const char* name;
  void (*call)(const at::Tensor& x);
};

class WaitingOperator : public testing::TestWithParam<WaitingCall> {};

TEST_P(WaitingOperator, IsDetected) {
  const at::Tensor x = at::ones({1}, at::kLong);
  const HostCaller caller(HostCaller::kTrainingStep);
  const HostWaitWatch watch(cpu());
  GetParam().call(x);
  EXPECT_EQ(found_by(watch), std::string("aten::") + GetParam().name);
}

INSTANTIATE_TEST_SUITE_P(
    All, WaitingOperator,
    testing::Values(WaitingCall{"item", [](const at::Tensor& x) { (void)x.item(); }},
                    WaitingCall{"_local_scalar_dense",
                                [](const at::Tensor& x) { (void)at::_local_scalar_dense(x); }},
                    WaitingCall{"is_nonzero", [](const at::Tensor& x) { (void)x.is_nonzero(); }},
                    WaitingCall{"equal", [](const at::Tensor& x) { (void)x.equal(x); }},
                    WaitingCall{"nonzero", [](const at::Tensor& x) { (void)x.nonzero(); }},
                    WaitingCall{"masked_select", [](const at::Tensor& x) { (void)x.masked_select(x.gt(0)); }},
                    WaitingCall{"_unique2", [](const at::Tensor& x) { (void)at::_unique2(x); }},
                    WaitingCall{"bincount", [](const at::Tensor& x) { (void)x.bincount(); }},
                    WaitingCall{"allclose", [](const at::Tensor& x) { (void)x.allclose(x); }}),
    [](const auto& info) { return info.param.name; });

TEST(HostWaitWatch, EndsWithItsScope) {
  { const HostWaitWatch watch(cpu()); }
  EXPECT_EQ(at::ones({1}).item<float>(), 1);  // a callback left behind would write into what is gone
  const HostWaitWatch second(cpu());
  EXPECT_EQ(found_by(second), "");
}

// Reads its loss on the host, as a hand-written loop does.
struct Impatient : LinearRegression {
  at::Tensor training_step(const Batch& batch) override {
    const at::Tensor loss = LinearRegression::training_step(batch);
    last = loss.item<float>();
    return loss;
  }
  float last = 0;
};

std::vector<std::string> warnings_of_fit(const std::shared_ptr<Module>& model, TrainerOptions options = {}) {
  std::vector<std::string> warnings;
  configure_log({.level = LogLevel::warning, .file = {}});
  set_log_observer([&](LogLevel, const std::string& text) { warnings.push_back(text); });
  SyntheticRegression data;
  options.max_epochs = 2;
  Trainer(options).fit(model, data);
  set_log_observer({});
  return warnings;
}

TEST(HostWaitWatch, WarnsOnceAboutAStepThatWaits) {
  const auto warnings = warnings_of_fit(std::make_shared<Impatient>());
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("training_step calls aten::item"), std::string::npos) << warnings[0];
}

struct ReadsGradients : Callback {
  void on_before_optimizer_step(Trainer&, Module&, Optimizer& optimizer) override {
    largest = optimizer.gradients()[0].abs().max().item<float>();
  }
  float largest = 0;
};

struct ReadsItsGradients : Sgd {
  using Sgd::Sgd;
  void update(const Update& update) override {
    largest = update.gradients[0].abs().max().item<float>();
    Sgd::update(update);
  }
  float largest = 0;
};

TEST(HostWaitWatch, BlamesACallbackForItsOwn) {
  const auto warnings = warnings_of_fit(std::make_shared<LinearRegression>(),
                                        {.callbacks = {std::make_shared<ReadsGradients>()}});
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(
      warnings[0].find("the callback kindling::(anonymous namespace)::ReadsGradients calls aten::item, which "
                       "would make the host wait for a GPU in every step; records and Trainer::preview()"),
      0U)
      << warnings[0];
}

TEST(HostWaitWatch, BlamesAnOptimizerForItsOwn) {
  const auto warnings = warnings_of_fit(
      std::make_shared<LinearRegression>(),
      {.optimizer = [](const ParameterGroups& all) { return std::make_unique<ReadsItsGradients>(all); }});
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(
      warnings[0].find("the optimizer kindling::(anonymous namespace)::ReadsItsGradients calls aten::item"),
      0U)
      << warnings[0];
}

struct StaticNet : Module {
  at::Tensor forward(const at::Tensor& x) override { return last->forward(first->forward(x).relu()); }
  at::Tensor loss(const at::Tensor& y, const at::Tensor& labels) override { return at::mse_loss(y, labels); }
  bool has_static_graph() const override { return true; }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(2, 4)),
                    last = register_module("last", torch::nn::Linear(4, 2));
};

struct EightPairs : DataModule {
  std::shared_ptr<DataLoader> train_dataloader() override {
    return train_loader_of({at::ones({8, 2}), at::zeros({8, 2})});
  }
  EightPairs() : DataModule({.batch_size = 4}) {}
};

// With two steps in an epoch the replay is built in a step that is watched: native kernels are probed there,
// by comparing tensors.
TEST(HostWaitWatch, IsSilentAboutTheLibrarysOwnProbes) {
  std::vector<std::string> warnings;
  set_log_observer([&](LogLevel level, const std::string& text) {
    if (level >= LogLevel::warning) warnings.push_back(text);
  });
  EightPairs data;
  Trainer({.max_epochs = 9}).fit(std::make_shared<StaticNet>(), data);
  set_log_observer({});
  EXPECT_EQ(warnings, std::vector<std::string>{});
}

// The GRU of packed sequences reads their batch sizes, which are on the host everywhere.
TEST(HostWaitWatch, IsSilentAboutPackedSequences) {
  struct Packed : StaticNet {
    at::Tensor forward_inputs(const Batch& batch) override {
      const at::Tensor lengths = at::full({batch[0].size(0)}, 2);
      const auto packed = torch::nn::utils::rnn::pack_padded_sequence(batch[0].unsqueeze(-1), lengths, true);
      return head->forward(std::get<1>(gru->forward_with_packed_input(packed))[0]);
    }
    bool has_static_graph() const override { return false; }
    torch::nn::GRU gru = register_module("gru", torch::nn::GRU(1, 4));
    torch::nn::Linear head = register_module("head", torch::nn::Linear(4, 2));
  };
  std::vector<std::string> warnings;
  set_log_observer([&](LogLevel, const std::string& text) {
    if (text.find("make the host wait") != std::string::npos) warnings.push_back(text);
  });
  EightPairs data;
  Trainer({.max_epochs = 1}).fit(std::make_shared<Packed>(), data);
  set_log_observer({});
  EXPECT_EQ(warnings, std::vector<std::string>{});
}

TEST(HostWaitWatch, IsSilentForAStepThatDoesNotWait) {
  EXPECT_TRUE(warnings_of_fit(std::make_shared<LinearRegression>()).empty());
}

}  // namespace
}  // namespace kindling
