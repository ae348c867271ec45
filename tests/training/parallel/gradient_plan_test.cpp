// Reduces the gradients of one optimizer over ranks, here threads.
#include "training/parallel/gradient_plan.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "kindling/base/error.h"
#include "kindling/optim/sgd.h"
#include "support/rank_threads.h"
#include "training/parallel/counting_group.h"

namespace kindling {
namespace {

// Two dtypes, which are sent separately: `late` first, because it is the last parameter of the model.
struct TwoTypes : torch::nn::Module {
  TwoTypes() {
    early = register_parameter("early", at::ones({2}));
    late = register_parameter("late", at::ones({2}, at::kDouble));
  }
  at::Tensor early, late;
};

struct Planned {
  explicit Planned(std::int64_t epoch = 0) : plan(optimizer, model, epoch, /*in_tree=*/false) {
    plan.watch();
  }
  // A whole step, in which each gradient of both parameters is `factor`.
  at::Tensor step(ProcessGroup& group, GradientShare share, float factor) {
    drop_gradients();
    plan.begin_sending(group, share);
    const at::Tensor loss = model.early.sum() * factor + model.late.sum() * factor;
    loss.backward();
    return finish(group, share, loss.detach());
  }
  at::Tensor finish(ProcessGroup& group, GradientShare share, const at::Tensor& loss) {
    StopConsensus stop{StopToken(), &group};
    plan.send_all(group, share, {&loss, 1}, {}, stop.votes());
    return plan.receive(stop);
  }
  void drop_gradients() {
    model.early.mutable_grad() = at::Tensor();
    model.late.mutable_grad() = at::Tensor();
  }

  TwoTypes model;
  Sgd optimizer{ParameterGroups(model), SgdOptions{.lr = 1}};
  GradientPlan plan;
};

void expect_all(const at::Tensor& gradient, double value) {
  ASSERT_TRUE(gradient.defined());
  EXPECT_TRUE(gradient.eq(value).all().item<bool>()) << gradient;
}

TEST(GradientPlan, ReducesToTheMeanOverAllSamples) {
  on_ranks(2, [](ProcessGroup& group) {
    Planned planned;
    const double samples = group.rank() == 0 ? 3 : 1;
    for (int i = 0; i < 3; ++i) {
      planned.step(group, {.scale = samples, .weight = {.number = samples}}, group.rank() == 0 ? 1 : 5);
      expect_all(planned.model.early.grad(), 2);  // (3 · 1 + 1 · 5) / 4
      expect_all(planned.model.late.grad(), 2);
    }
  });
}

// Gradients and buffers.
TEST(GradientPlan, ReducesComplexNumbers) {
  struct Spectral : torch::nn::Module {
    Spectral() {
      weight = register_parameter("weight", at::ones({2}, at::kComplexFloat));
      seen = register_buffer("seen", at::zeros({2}, at::kComplexFloat));
    }
    at::Tensor weight, seen;
  };
  on_ranks(2, [](ProcessGroup& group) {
    Spectral model;
    Sgd optimizer{ParameterGroups(model), SgdOptions{.lr = 1}};
    GradientPlan plan(optimizer, model, /*epoch=*/0, /*in_tree=*/false);
    plan.watch();
    const double mine = group.rank() == 0 ? 1 : 5;
    const at::Tensor factor = at::full({2}, c10::complex<double>(mine, -2 * mine), at::kComplexFloat);
    model.seen.copy_(factor);
    plan.begin_sending(group, {});
    const at::Tensor loss = at::real(model.weight * factor).sum();
    loss.backward();
    StopConsensus stop{StopToken(), &group};
    plan.send_all(group, {}, std::array{loss.detach()}, {}, stop.votes());
    plan.receive(stop);
    group.broadcast(plan.other_buffers());
    // The gradient of Re(w f) is the conjugate of f. The mean of 1 and 5 is 3.
    EXPECT_TRUE(model.weight.grad().equal(at::full({2}, c10::complex<double>(3, 6), at::kComplexFloat)));
    EXPECT_TRUE(model.seen.equal(at::full({2}, c10::complex<double>(1, -2), at::kComplexFloat)));
  });
}

TEST(GradientPlan, IsValidForItsEpochAndParametersOnly) {
  Planned planned(/*epoch=*/2);
  EXPECT_TRUE(planned.plan.fits(planned.optimizer, 2));
  EXPECT_FALSE(planned.plan.fits(planned.optimizer, 3));
  planned.model.early.set_data(at::ones({3}));
  EXPECT_FALSE(planned.plan.fits(planned.optimizer, 2));
  planned.model.early.set_data(at::ones({2}, at::kDouble));
  EXPECT_FALSE(planned.plan.fits(planned.optimizer, 2));
}

// A rank whose batch only repeats samples to take part in the step.
TEST(GradientPlan, IgnoresBatchesThatDoNotCount) {
  on_ranks(2, [](ProcessGroup& group) {
    Planned planned;
    const bool counts = group.rank() == 0;
    const GradientShare share{.scale = counts ? 1. : 0., .weight = {.number = counts ? 1. : 0.}};
    planned.plan.begin_sending(group, share);
    const at::Tensor loss = counts ? planned.model.early.sum() : planned.model.late.sum() * NAN;
    loss.backward();
    const at::Tensor not_finite = planned.finish(group, share, loss.detach());
    EXPECT_EQ(not_finite.item<float>(), 0);
    expect_all(planned.model.early.grad(), 1);
    EXPECT_FALSE(planned.model.late.grad().defined());
    planned.step(group, share, counts ? 3 : std::numeric_limits<float>::quiet_NaN());
    expect_all(planned.model.early.grad(), 3);
    expect_all(planned.model.late.grad(), 3);
  });
}

TEST(GradientPlan, ReportsANonfiniteLossToAllRanks) {
  on_ranks(2, [](ProcessGroup& group) {
    Planned planned;
    const at::Tensor mark =
        planned.step(group, {}, group.rank() == 1 ? std::numeric_limits<float>::infinity() : 1);
    EXPECT_TRUE(mark.isnan().item<bool>());
  });
}

// Layers that are recomputed in backward must be used from the first step on.
TEST(GradientPlan, WaitsForGradientsAccumulatedInParts) {
  on_ranks(2, [](ProcessGroup& group) {
    Planned planned;
    for (int i = 0; i < 3; ++i) {
      planned.drop_gradients();
      planned.plan.begin_sending(group, {});
      const at::Tensor loss = planned.model.late.sum();
      loss.backward();
      planned.model.late.sum().backward();
      planned.finish(group, {}, loss.detach());
      expect_all(planned.model.late.grad(), 2);
    }
  });
}

TEST(GradientPlan, RefusesGradientsThatLaterComeInParts) {
  on_ranks(2, [](ProcessGroup& group) {
    Planned planned;
    planned.step(group, {}, 1);
    planned.drop_gradients();
    planned.plan.begin_sending(group, {});
    planned.model.late.sum().backward();
    try {
      planned.model.late.sum().backward();
      ADD_FAILURE() << "not refused";
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("the gradient of 'late': it was accumulated twice"),
                std::string::npos)
          << error.what();
    }
  });
}

// The gradient's own memory is freed while backward is still running.
TEST(GradientPlan, StoresGradientsInTheirBuckets) {
  on_ranks(2, [](ProcessGroup& group) {
    Planned planned;
    planned.step(group, {}, 1);
    const void* const bucket = planned.model.late.grad().const_data_ptr();
    planned.drop_gradients();
    planned.plan.begin_sending(group, {});
    planned.model.late.sum().backward();
    EXPECT_EQ(planned.model.late.grad().const_data_ptr(), bucket);
    planned.finish(group, {}, at::zeros({}));
  });
}

TEST(GradientPlan, DropsTheGradientsOfAStepThatThrew) {
  on_ranks(2, [](ProcessGroup& group) {
    Planned planned;
    planned.step(group, {}, 1);
    planned.drop_gradients();
    planned.plan.begin_sending(group, {});
    (planned.model.late.sum() * 7).backward();  // its bucket is sent; then something throws
    CountingGroup counting(std::shared_ptr<ProcessGroup>(&group, [](ProcessGroup*) {}));
    planned.step(counting, {}, group.rank() == 0 ? 1 : 3);
    EXPECT_EQ(counting.num_started, 2);
    expect_all(planned.model.late.grad(), 2);
    expect_all(planned.model.early.grad(), 2);
  });
}

// A user's hook: doubles the gradient.
struct Doubles : torch::autograd::PostAccumulateGradHook {
  explicit Doubles(int& num_calls) : num_calls(num_calls) {}
  void operator()(const at::Tensor& parameter) override {
    ++num_calls;
    const at::NoGradGuard no_grad;
    parameter.mutable_grad().mul_(2);
  }
  int& num_calls;
};

void set_hook(const at::Tensor& parameter, std::unique_ptr<torch::autograd::PostAccumulateGradHook> hook) {
  torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::move(hook));
}

TEST(GradientPlan, CallsTheHooksOfParametersInEveryStep) {
  on_ranks(2, [](ProcessGroup& group) {
    int of_early = 0, of_late = 0;
    TwoTypes model;
    Sgd optimizer(ParameterGroups(model), SgdOptions{.lr = 1});
    set_hook(model.early, std::make_unique<Doubles>(of_early));
    const auto step = [&](GradientPlan& plan) {
      model.early.mutable_grad() = model.late.mutable_grad() = at::Tensor();
      plan.begin_sending(group, {});
      const at::Tensor loss = model.early.sum() + model.late.sum();
      loss.backward();
      StopConsensus stop{StopToken(), &group};
      const at::Tensor detached = loss.detach();
      plan.send_all(group, {}, {&detached, 1}, {}, stop.votes());
      plan.receive(stop);
      expect_all(model.early.grad(), 2);
    };
    for (int epoch = 0; epoch < 3; ++epoch) {
      GradientPlan plan(optimizer, model, epoch, /*in_tree=*/false);
      plan.watch();
      for (int i = 0; i < 3; ++i) step(plan);
      if (epoch == 1) {  // one that is registered later, in the middle of an epoch
        set_hook(model.late, std::make_unique<Doubles>(of_late));
        step(plan);
        expect_all(model.late.grad(), 2);
      }
    }
    EXPECT_EQ(of_early, 10);
    EXPECT_EQ(of_late, 4);
    model.early.sum().backward();  // and without a group
    EXPECT_EQ(of_early, 11);
  });
}

// Calls the hook that a parameter had before.
struct Around : torch::autograd::PostAccumulateGradHook {
  explicit Around(const at::Tensor& parameter)
      : before(std::move(torch::autograd::impl::post_acc_grad_hooks(parameter))) {}
  void operator()(const at::Tensor& parameter) override { (*before)(parameter); }
  std::unique_ptr<torch::autograd::PostAccumulateGradHook> before;
};

TEST(GradientPlan, MayEndBeforeAHookThatCallsIts) {
  on_ranks(2, [](ProcessGroup& group) {
    TwoTypes model;
    Sgd optimizer(ParameterGroups(model), SgdOptions{.lr = 1});
    auto plan = std::make_unique<GradientPlan>(optimizer, model, 0, /*in_tree=*/false);
    plan->watch();
    set_hook(model.early, std::make_unique<Around>(model.early));
    plan->begin_sending(group, {});
    plan.reset();
    model.early.sum().backward();
    expect_all(model.early.grad(), 1);
  });
}

}  // namespace
}  // namespace kindling
