// Options of layers are constants of captured steps. A change of one between two steps counts in the next
// step, with capture as without.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "training/capture/step_graph.h"

namespace kindling {
namespace {

constexpr std::int64_t kChangedRows = 6, kChangedSteps = 18, kChangedChannels = 4, kChangedSide = 6;

std::int64_t num_option_changes() {
  const char* set = std::getenv("KINDLING_SOAK_OPTIONS");
  return set == nullptr ? 300 : std::atoi(set);
}

// Draws a layer that keeps the shape of images [rows, channels, side, side], and a way to change it.
struct ChangingLayer {
  torch::nn::AnyModule layer;
  std::function<void(double)> change;  // takes a number from 0 to 1
};

template <class Layer, class Change>
ChangingLayer changing(Layer layer, Change change) {
  return {.layer = torch::nn::AnyModule(layer),
          .change = [layer, change](double x) mutable { change(*layer, x); }};
}

ChangingLayer drawn_layer(std::int64_t kind) {
  using namespace torch::nn;
  switch (kind) {
    case 0:
      return changing(Dropout(0.2), [](auto& l, double x) { l.options.p(0.8 * x); });
    case 1:
      return changing(Dropout2d(0.2), [](auto& l, double x) { l.options.p(0.8 * x); });
    case 2:
      return changing(LeakyReLU(), [](auto& l, double x) { l.options.negative_slope(x); });
    case 3:
      return changing(ELU(), [](auto& l, double x) { l.options.alpha(x + 0.1); });
    case 4:
      return changing(BatchNorm2d(kChangedChannels), [](auto& l, double x) { l.options.eps(x + 1e-5); });
    case 5:
      return changing(BatchNorm2d(kChangedChannels), [](auto& l, double x) { l.options.momentum(x); });
    case 6:
      return changing(GroupNorm(GroupNormOptions(2, kChangedChannels)),
                      [](auto& l, double x) { l.options.eps(x + 1e-5); });
    case 7:
      return changing(LayerNorm(LayerNormOptions({kChangedSide})),
                      [](auto& l, double x) { l.options.eps(x + 1e-5); });
    case 8:
      return changing(Softplus(), [](auto& l, double x) { l.options.beta(x + 0.5); });
    case 9:
      return changing(Hardtanh(), [](auto& l, double x) { l.options.max_val(x + 0.1); });
    case 10:
      return changing(Conv2d(Conv2dOptions(kChangedChannels, kChangedChannels, 3).padding(1)),
                      [](auto& l, double x) {
                        const auto dilation = static_cast<std::int64_t>(1 + 2 * x);
                        l.options.dilation(dilation).padding(torch::ExpandingArray<2>(dilation));
                      });
    case 11:
      return changing(AvgPool2d(AvgPool2dOptions(3).stride(1).padding(1)),
                      [](auto& l, double x) { l.options.count_include_pad(x < 0.5); });
    case 12:
      return changing(Softmax(1),
                      [](auto& l, double x) { l.options.dim(static_cast<std::int64_t>(1 + 2 * x)); });
    case 13:
      return changing(CELU(), [](auto& l, double x) { l.options.alpha(x + 0.1); });
    case 14:
      return changing(InstanceNorm2d(kChangedChannels), [](auto& l, double x) { l.options.eps(x + 1e-5); });
    case 15:
      return changing(Threshold(0.1, 0.2), [](auto& l, double x) { l.options.threshold(x).value(x); });
    default:
      return changing(Upsample(UpsampleOptions()
                                   .size(std::vector<std::int64_t>{kChangedSide, kChangedSide})
                                   .mode(torch::kBilinear)
                                   .align_corners(false)),
                      [](auto& l, double x) { l.options.align_corners(x < 0.5); });
  }
}

constexpr std::int64_t kNumKinds = 17;

class ChangingNet : public Classifier {
 public:
  explicit ChangingNet(unsigned seed) {
    std::mt19937 random(seed);
    torch::nn::Sequential layers{torch::nn::Conv2d(1, kChangedChannels, 1)};
    for (int i = 0; i < 3; ++i) {
      auto [layer, change] = drawn_layer(static_cast<std::int64_t>(random()) % kNumKinds);
      layers->push_back(layer);
      changes.push_back(change);
    }
    layers->push_back(torch::nn::Flatten());
    layers->push_back(torch::nn::Linear(kChangedChannels * kChangedSide * kChangedSide, 3));
    net_ = register_module("net", layers);
  }
  at::Tensor forward(const at::Tensor& images) override { return net_->forward(images) * scale; }
  at::Tensor training_step(const Batch& batch) override {
    ++num_calls;
    return Classifier::training_step(batch);
  }
  bool has_static_graph() const override { return true; }

  std::vector<std::function<void(double)>> changes;
  double scale = 1;  // a member of the user's class
  int num_calls = 0;

 private:
  torch::nn::Sequential net_;
};

// Calls a function after some of the steps.
class AfterSteps : public Callback {
 public:
  explicit AfterSteps(std::function<void(ChangingNet&, std::int64_t step)> act) : act_(std::move(act)) {}
  void on_train_batch_end(Trainer& trainer, Module& model) override {
    act_(dynamic_cast<ChangingNet&>(model), trainer.progress().global_step);
  }

 private:
  std::function<void(ChangingNet&, std::int64_t)> act_;
};

struct ChangedRun {
  std::vector<at::Tensor> values;
  std::string said;
  int num_calls;
};

ChangedRun changed_run(unsigned seed, const char* step_graph,
                       const std::function<void(ChangingNet&, std::int64_t step)>& act) {
  const SaidBySteps said;
  torch::manual_seed(seed);
  const auto model = std::make_shared<ChangingNet>(seed);
  const std::int64_t n = kChangedRows * kChangedSteps;
  TensorData data({at::randn({n, 1, kChangedSide, kChangedSide}), at::randint(3, {n})}, {},
                  {.batch_size = kChangedRows});
  Trainer({.max_epochs = 1,
           .step_graph = step_graph,
           .optimizer =
               [](ParameterGroups p) { return std::make_unique<Sgd>(std::move(p), SgdOptions{.lr = 0.1}); },
           .callbacks = {std::make_shared<AfterSteps>(act)}})
      .fit(model, data);
  ChangedRun run{.values = {}, .said = said.text(), .num_calls = model->num_calls};
  for (const at::Tensor& tensor : model->parameters()) run.values.push_back(tensor.detach());
  for (const at::Tensor& tensor : model->buffers()) run.values.push_back(tensor);
  return run;
}

void expect_same_run(const ChangedRun& captured, const ChangedRun& eager) {
  ASSERT_EQ(captured.values.size(), eager.values.size());
  for (std::size_t i = 0; i < eager.values.size(); ++i)
    EXPECT_TRUE(same(captured.values[i], eager.values[i])) << "tensor " << i;
}

// Three changes in each run, after at least two replays.
TEST(StepGraphOptions, CountInTheNextStep) {
  int num_replayed = 0;
  for (unsigned seed = 1; seed <= num_option_changes() / 3 && !testing::Test::HasFailure(); ++seed) {
    const auto act = [seed](ChangingNet& net, std::int64_t step) {
      if (step % 5 != 0 || step > 15) return;
      std::mt19937 random(seed * 100 + static_cast<unsigned>(step));
      net.changes[random() % net.changes.size()](static_cast<double>(random() % 1000) / 1000);
    };
    const ChangedRun eager = changed_run(seed, "off", act), captured = changed_run(seed, "auto", act);
    SCOPED_TRACE(seed);
    expect_same_run(captured, eager);
    EXPECT_EQ(captured.said.find("computes something different"), std::string::npos) << captured.said;
    num_replayed += captured.num_calls < eager.num_calls ? 1 : 0;
  }
  EXPECT_GE(num_replayed, num_option_changes() / 3 * 9 / 10);  // refusing all would pass the rest
}

TEST(StepGraphOptions, OfTheLossCountInTheNextStep) {
  const auto act = [](ChangingNet& net, std::int64_t step) {
    if (step == 6) net.set_loss_options({.label_smoothing = 0.3});
    if (step == 12) net.set_class_weights(at::tensor({1., 2., 0.5}, at::kDouble));
  };
  const ChangedRun eager = changed_run(7, "off", act), captured = changed_run(7, "auto", act);
  expect_same_run(captured, eager);
  EXPECT_LT(captured.num_calls, eager.num_calls);
}

// A member of the user's class needs changed(), and "check" finds that it is missing.
TEST(StepGraphOptions, OfUsersClassesAreAnnouncedOrFound) {
  const auto act = [](bool announces) {
    return [announces](ChangingNet& net, std::int64_t step) {
      if (step != 9) return;
      net.scale = 0.5;
      if (announces) net.changed();
    };
  };
  const ChangedRun eager = changed_run(8, "off", act(false)), told = changed_run(8, "auto", act(true)),
                   checked = changed_run(8, "check", act(false));
  expect_same_run(told, eager);
  EXPECT_LT(told.num_calls, eager.num_calls);
  EXPECT_EQ(told.said.find("computes something different"), std::string::npos);
  expect_same_run(checked, eager);
  EXPECT_NE(checked.said.find("computes something different"), std::string::npos) << checked.said;
  EXPECT_NE(checked.said.find("The results of the eager step were used"), std::string::npos);
}

}  // namespace
}  // namespace kindling
