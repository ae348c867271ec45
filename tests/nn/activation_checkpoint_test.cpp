#include "kindling/nn/activation_checkpoint.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn.h>

#include <functional>
#include <memory>
#include <string>

#include "device/random_state.h"
#include "kindling/base/error.h"
#include "kindling/nn/carried_state.h"
#include "kindling/nn/lazy_linear.h"
#include "kindling/tensors/move.h"
#include "kindling/tensors/state_dict.h"
#include "nn/precision.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

// All that must happen once or twice alike: it draws, it has statistics, and it counts its computations.
struct RestlessBlock : torch::nn::Module {
  explicit RestlessBlock(std::int64_t width)
      : linear(register_module("linear", torch::nn::Linear(width, width))),
        norm(register_module("norm", torch::nn::BatchNorm1d(width))),
        dropout(register_module("dropout", torch::nn::Dropout(0.3))) {}
  at::Tensor forward(const at::Tensor& x) {
    ++num_calls;
    return x + dropout->forward(norm->forward(linear->forward(x)).tanh());
  }
  torch::nn::Linear linear;
  torch::nn::BatchNorm1d norm;
  torch::nn::Dropout dropout;
  int num_calls = 0;
};

// What a step on a net leaves.
struct StepEnd {
  at::Tensor output, input_gradient;
  std::vector<at::Tensor> gradients, random;
  StateDict state;
};

class ActivationCheckpoints : public OnDevice {
 protected:
  // Three blocks in a row; the first sees an input without a gradient.
  template <class Block>
  torch::nn::Sequential net() const {
    at::manual_seed(5);
    torch::nn::Sequential made;
    for (int i = 0; i < 3; ++i) made->push_back(std::make_shared<Block>(6));
    move_to(*made, device_);
    return made;
  }
  using Plain = RestlessBlock;
  using Checkpointed = ActivationCheckpointImpl<RestlessBlock>;

  at::Tensor input(std::int64_t rows = 8) const {
    return move_to(at::arange(rows * 6, at::kFloat).mul(0.37).sin().view({rows, 6}), device_);
  }

  // Two steps, with their gradients added up.
  StepEnd steps(const std::function<at::Tensor(const at::Tensor&)>& forward, torch::nn::Module& net,
                bool input_learns, const Precision& precision = {}) const {
    at::manual_seed(9);
    StepEnd end;
    for (int step = 0; step < 2; ++step) {
      const at::Tensor x = input().requires_grad_(input_learns);
      {
        const AutocastScope autocast(precision, device_);
        end.output = forward(x);
      }
      end.output.square().sum().backward();
      end.input_gradient = x.grad();
    }
    for (const auto& item : net.named_parameters()) end.gradients.push_back(item.value().grad());
    end.state = state_dict(net);
    end.random = random_state(device_);
    return end;
  }

  static void expect_same_end(const StepEnd& actual, const StepEnd& expected) {
    EXPECT_TRUE(same(actual.output, expected.output));
    ASSERT_EQ(actual.input_gradient.defined(), expected.input_gradient.defined());
    if (actual.input_gradient.defined()) {
      EXPECT_TRUE(same(actual.input_gradient, expected.input_gradient));
    }
    ASSERT_EQ(actual.gradients.size(), expected.gradients.size());
    for (std::size_t i = 0; i < actual.gradients.size(); ++i) {
      ASSERT_EQ(actual.gradients[i].defined(), expected.gradients[i].defined()) << i;
      if (actual.gradients[i].defined()) {
        EXPECT_TRUE(same(actual.gradients[i], expected.gradients[i])) << i;
      }
    }
    ASSERT_EQ(actual.state.tensors.size(), expected.state.tensors.size());
    for (std::size_t i = 0; i < actual.state.tensors.size(); ++i) {
      EXPECT_EQ(actual.state.tensors[i].first, expected.state.tensors[i].first);
      EXPECT_TRUE(same(actual.state.tensors[i].second, expected.state.tensors[i].second))
          << actual.state.tensors[i].first;
    }
    for (std::size_t i = 0; i < actual.random.size(); ++i)
      EXPECT_TRUE(same(actual.random[i], expected.random[i])) << "generator " << i;
  }

  // The sum of the part's output, backward; for parts that throw.
  static std::string error_of(const std::function<at::Tensor()>& forward) {
    return error_text<Error>([&] { forward().sum().backward(); });
  }
};
KINDLING_RUN_ON_DEVICES(ActivationCheckpoints);

// Dropout, batch norm, names, random state and the gradients of an input: all as without a checkpoint.
TEST_P(ActivationCheckpoints, AreBitIdenticalToThePlainComputation) {
  for (const char* precision : {"32-true", "bf16-mixed"})
    for (const bool input_learns : {false, true}) {
      SCOPED_TRACE(std::string(precision) + (input_learns ? ", input learns" : ""));
      auto plain = net<Plain>(), checkpointed = net<Checkpointed>();
      const auto run = [&](torch::nn::Sequential& model) {
        return steps([&](const at::Tensor& x) { return model->forward(x); }, *model, input_learns,
                     Precision::named(precision));
      };
      const StepEnd expected = run(plain), actual = run(checkpointed);
      expect_same_end(actual, expected);
      EXPECT_NE(actual.state.find("0.linear.weight"), nullptr);
      for (std::size_t i = 0; i < 3; ++i)
        EXPECT_EQ(checkpointed->ptr(i)->as<RestlessBlock>()->num_calls, 4) << "twice in each of two steps";
    }
}

TEST_P(ActivationCheckpoints, AreComputedOnceWithoutGradients) {
  auto model = net<Checkpointed>();
  auto& block = *model->ptr(0)->as<RestlessBlock>();
  {
    const at::NoGradGuard no_grad;
    model->forward(input());
  }
  EXPECT_EQ(block.num_calls, 1);
  for (at::Tensor& parameter : model->parameters()) parameter.requires_grad_(false);
  EXPECT_FALSE(model->forward(input()).requires_grad());
  EXPECT_EQ(block.num_calls, 2);
  // An input that learns, through frozen parameters.
  const at::Tensor x = input().requires_grad_();
  model->forward(x).sum().backward();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_FALSE(block.linear->weight.grad().defined());
}

TEST_P(ActivationCheckpoints, AreIdenticalInEvaluationMode) {
  auto plain = net<Plain>(), checkpointed = net<Checkpointed>();
  for (auto* model : {&plain, &checkpointed}) (*model)->eval();
  const auto run = [&](torch::nn::Sequential& model) {
    return steps([&](const at::Tensor& x) { return model->forward(x); }, *model, true);
  };
  const StepEnd expected = run(plain);
  expect_same_end(run(checkpointed), expected);
}

TEST_P(ActivationCheckpoints, HoldWhenNestedAndWhenUsedTwice) {
  const auto twice = [](torch::nn::Sequential& model) {
    return [&model](const at::Tensor& x) { return model->forward(model->forward(x)); };
  };
  auto plain = net<Plain>(), inner = net<Checkpointed>();
  const StepEnd expected = steps(twice(plain), *plain, true);
  const auto outer = std::make_shared<ActivationCheckpointImpl<torch::nn::SequentialImpl>>();
  for (const auto& block : inner->children())
    outer->push_back(std::dynamic_pointer_cast<Checkpointed>(block));
  const StepEnd actual =
      steps([&](const at::Tensor& x) { return outer->forward(outer->forward(x)); }, *outer, true);
  expect_same_end(actual, expected);
}

// Autocast keeps casts of weights while it is on, and each belongs to the graph in which it was made.
TEST_P(ActivationCheckpoints, ShareTheirWeightsUnderAutocast) {
  auto plain = net<Plain>(), checkpointed = net<Checkpointed>();
  for (auto* model : {&plain, &checkpointed}) {
    const AutocastScope autocast(Precision::named("bf16-mixed"), device_);
    auto& first = *(*model)->ptr(0)->as<RestlessBlock>();
    at::manual_seed(9);
    at::Tensor y = (*model)->forward((*model)->forward(input()));
    y = y + first.linear->forward(input());  // outside of any segment
    y.sum().backward();                      // also under autocast, where a recomputation finds casts of then
  }
  // Contributions are added up in float32 for each segment instead of in bfloat16, which has 8 bits.
  for (const auto& item : plain->named_parameters())
    EXPECT_TRUE(close(checkpointed->named_parameters()[item.key()].grad(), item.value().grad(), 0.03))
        << item.key();
}

// Weights that no output depends on keep no gradient, and hooks are called once, with the complete gradient.
TEST_P(ActivationCheckpoints, TreatParametersAsAnyLayer) {
  struct Half : torch::nn::Module {
    Half()
        : used(register_parameter("used", at::ones({3}))),
          unused(register_parameter("unused", at::ones({3}))) {}
    at::Tensor forward(const at::Tensor& x) { return x * used + 0 * used; }
    at::Tensor used, unused;
  };
  ActivationCheckpoint<Half> half;
  move_to(*half, device_);
  int num_calls = 0;
  half->used.register_hook([&](const at::Tensor& gradient) {
    ++num_calls;
    return 2 * gradient;
  });
  const at::Tensor x = move_to(at::full({3}, 5.0), device_);
  half->forward(x).sum().backward();
  EXPECT_EQ(num_calls, 1);
  EXPECT_TRUE(same(half->used.grad(), at::full({3}, 10.0)));
  EXPECT_FALSE(half->unused.grad().defined());

  // Nor are a part's own parameters all that may learn.
  const at::Tensor elsewhere = move_to(at::full({3}, 2.0), device_).requires_grad_();
  activation_checkpoint(
      *half, [&](const at::Tensor& given) { return given * elsewhere; }, x)
      .sum()
      .backward();
  EXPECT_TRUE(same(elsewhere.grad(), at::full({3}, 5.0)));
}

TEST_P(ActivationCheckpoints, SupportSeveralInputsAndOutputs) {
  using torch::nn::LSTM, torch::nn::LSTMOptions;
  using State = std::tuple<at::Tensor, at::Tensor>;
  at::manual_seed(1);
  LSTM plain(LSTMOptions(3, 4));
  ActivationCheckpoint<LSTM> checkpointed(LSTMOptions(3, 4));
  load_state_dict(*checkpointed, state_dict(*plain));
  move_to(*plain, device_);
  move_to(*checkpointed, device_);
  std::vector<std::vector<at::Tensor>> ends;
  const auto run = [&](auto&& lstm) {
    const at::Tensor x = move_to(at::arange(30, at::kFloat).sin().view({5, 2, 3}), device_).requires_grad_();
    const at::Tensor h = move_to(at::ones({1, 2, 4}), device_).requires_grad_(), c = h.detach() / 2;
    const auto [outputs, state] = lstm(x, State(h, c));
    (outputs.sum() + std::get<1>(state).square().sum()).backward();  // the last hidden state is not used
    ends.push_back({outputs, std::get<0>(state), x.grad(), h.grad()});
  };
  run([&](const at::Tensor& x, const State& state) { return plain->forward(x, state); });
  run([&](const at::Tensor& x, const State& state) { return checkpointed->forward(x, state); });
  for (std::size_t i = 0; i < ends[0].size(); ++i) EXPECT_TRUE(same(ends[1][i], ends[0][i])) << i;
  for (const auto& item : plain->named_parameters())
    EXPECT_TRUE(same(checkpointed->named_parameters()[item.key()].grad(), item.value().grad())) << item.key();
}

// A part whose outputs depend on a buffer that it writes: the number of its computations.
TEST_P(ActivationCheckpoints, RestoreBuffersForTheSecondComputation) {
  struct Counting : torch::nn::Module {
    Counting()
        : count(register_buffer("count", at::zeros({1}))),
          weight(register_parameter("weight", at::ones({1}))) {}
    at::Tensor forward(const at::Tensor& x) {
      count.add_(1);
      return (x * weight * count).square();
    }
    at::Tensor count, weight;
  };
  ActivationCheckpoint<Counting> part;
  move_to(*part, device_);
  const at::Tensor x = move_to(at::full({1}, 3.0), device_);
  for (const float expected : {2 * 9.f, 2 * 9.f * 4}) {  // d(3·w·n)²/dw = 2·9·n²
    part->weight.mutable_grad().reset();
    part->forward(x).backward();
    EXPECT_EQ(part->weight.grad().item<float>(), expected);
  }
  EXPECT_EQ(part->count.item<float>(), 2);
}

TEST_P(ActivationCheckpoints, RestoreCarriedStatesForTheSecondComputation) {
  struct Cell : torch::nn::Module {
    at::Tensor forward(const at::Tensor& x) {
      const auto [outputs, hidden] = gru->forward(x, state->hidden(x.size(1)));
      state->carry(hidden);
      return outputs;
    }
    torch::nn::GRU gru = register_module("gru", torch::nn::GRU(3, 4));
    CarriedState state = register_module("state", CarriedState());
  };
  std::vector<at::Tensor> gradients, hidden;
  const auto run = [&](auto cell) {
    move_to(*cell, device_);
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : cell->parameters()) parameter.fill_(0.25);
    const at::AutoGradMode with_gradients(true);
    for (int window = 0; window < 3; ++window)
      cell->forward(move_to(at::ones({2, 5, 3}), device_) * (window + 1)).sum().backward();
    for (const at::Tensor& parameter : cell->parameters()) gradients.push_back(parameter.grad());
    hidden.push_back(cell->state->hidden(5));
  };
  run(std::make_shared<Cell>());
  run(ActivationCheckpoint<Cell>());
  for (std::size_t i = 0; i < gradients.size() / 2; ++i)
    EXPECT_TRUE(same(gradients[i + gradients.size() / 2], gradients[i])) << i;
  EXPECT_TRUE(same(hidden[1], hidden[0]));
}

// In the pass that gives lazy layers their parameters the numbers are drawn as without a checkpoint.
TEST_P(ActivationCheckpoints, CreateTheParametersOfLazyLayers) {
  std::vector<at::Tensor> weights, gradients;
  const auto run = [&](auto part) {
    part->push_back(LazyLinear(5));
    part->push_back(torch::nn::Dropout(0.5));
    part->push_back(LazyLinear(2));
    move_to(*part, device_);
    at::manual_seed(3);
    for (int step = 0; step < 2; ++step) part->forward(input()).sum().backward();
    for (const auto& item : part->named_parameters()) {
      weights.push_back(item.value());
      gradients.push_back(item.value().grad());
    }
  };
  run(torch::nn::Sequential());
  run(ActivationCheckpoint<torch::nn::Sequential>());
  ASSERT_EQ(weights.size(), 8u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(same(weights[i + 4], weights[i])) << i;
    EXPECT_TRUE(same(gradients[i + 4], gradients[i])) << i;
  }
}

// Segments of a model that stands already.
TEST_P(ActivationCheckpoints, SupportFunctions) {
  auto plain = net<Plain>(), model = net<Plain>();
  const StepEnd expected = steps([&](const at::Tensor& x) { return plain->forward(x); }, *plain, false);
  const StepEnd actual = steps(
      [&](at::Tensor x) {
        for (const auto& child : model->children()) {
          auto& block = *child->as<RestlessBlock>();
          x = activation_checkpoint(
              block, [&block](const at::Tensor& given) { return block.forward(given); }, x);
        }
        return x;
      },
      *model, false);
  expect_same_end(actual, expected);
}

TEST_P(ActivationCheckpoints, SupportASecondBackward) {
  auto model = net<Checkpointed>();
  at::Tensor loss = model->forward(input()).sum();
  loss.backward({}, /*retain_graph=*/true);
  const at::Tensor once = model->parameters()[0].grad().clone();
  loss.backward();
  EXPECT_TRUE(same(model->parameters()[0].grad(), 2 * once));
  EXPECT_THROW(loss.backward(), c10::Error) << "its graph is gone";
}

TEST_P(ActivationCheckpoints, RejectPartsThatCannotBeRepeated) {
  // An input that is changed.
  ActivationCheckpoint<torch::nn::Sequential> in_place{
      torch::nn::ReLU(torch::nn::ReLUOptions().inplace(true)), torch::nn::Linear(6, 6)};
  move_to(*in_place, device_);
  const std::string changed = error_of([&] { return in_place->forward(input()); });
  EXPECT_NE(changed.find("activation checkpoint of Sequential: it changes its input 0 in place"),
            std::string::npos)
      << changed;

  // A tensor from elsewhere, whose gradient would be lost.
  torch::nn::Linear linear(6, 6);
  move_to(*linear, device_);
  const at::Tensor scale = linear->weight.sum();
  const auto scaled = [&](const at::Tensor& x) { return linear->forward(x) * scale; };
  const std::string outer = error_of([&] { return activation_checkpoint(*linear.ptr(), scaled, input()); });
  EXPECT_NE(outer.find("computed outside of it (SumBackward0)"), std::string::npos) << outer;

  // Another way the second time.
  int num_calls = 0;
  const at::Tensor other = linear->bias;
  const auto changing = [&](const at::Tensor& x) { return ++num_calls > 1 ? x * other : linear->forward(x); };
  const std::string twice = error_of([&] { return activation_checkpoint(*linear.ptr(), changing, input()); });
  EXPECT_NE(twice.find("second computation"), std::string::npos) << twice;
  EXPECT_NE(twice.find("Linear"), std::string::npos) << twice;
  const auto growing = [&](const at::Tensor& x) { return linear->forward(x).narrow(0, 0, ++num_calls); };
  num_calls = 0;
  EXPECT_NE(error_of([&] { return activation_checkpoint(*linear.ptr(), growing, input()); }).find("shapes"),
            std::string::npos);

  // Parameters that are changed in between.
  const std::string updated = error_text<Error>([&] {
    const at::Tensor y = activation_checkpoint(
        *linear.ptr(), [&](const at::Tensor& x) { return linear->forward(x); }, input());
    {
      const at::NoGradGuard no_grad;
      linear->bias.add_(1);
    }
    y.sum().backward();
  });
  EXPECT_NE(updated.find("a parameter has been changed between"), std::string::npos) << updated;

  // A state that the second computation would find changed.
  torch::nn::GRU gru(3, 4);
  move_to(*gru, device_);
  CarriedState state;
  const auto carrying = [&](const at::Tensor& x) {
    const auto [outputs, hidden] = gru->forward(x, state->hidden(x.size(1)));
    state->carry(hidden);
    return outputs;
  };
  const at::Tensor steps = move_to(at::ones({2, 5, 3}), device_);
  const std::string carried =
      error_text<Error>([&] { return activation_checkpoint(*gru.ptr(), carrying, steps); });
  EXPECT_NE(carried.find("without registering it"), std::string::npos) << carried;

  // Second derivatives.
  auto model = net<Checkpointed>();
  const at::Tensor x = input().requires_grad_();
  const std::string second = error_text<Error>(
      [&] { torch::autograd::grad({model->forward(x).sum()}, {x}, {}, {}, /*create_graph=*/true); });
  EXPECT_NE(second.find("second derivative"), std::string::npos) << second;
}

// An exception in the second computation restores everything.
TEST_P(ActivationCheckpoints, RestoreEverythingWhenTheyThrow) {
  const auto block = std::make_shared<RestlessBlock>(6);
  move_to(*block, device_);
  int num_calls = 0;
  const auto throwing = [&](const at::Tensor& x) {
    const at::Tensor y = block->forward(x);
    if (++num_calls == 2) throw std::runtime_error("the second time");
    return y;
  };
  const at::Tensor loss = activation_checkpoint(*block, throwing, input()).sum();
  const auto random = random_state(device_);
  const at::Tensor mean = block->norm->running_mean.clone();
  EXPECT_THROW(loss.backward(), std::runtime_error);
  EXPECT_TRUE(same(block->norm->running_mean, mean));
  EXPECT_EQ(block->norm->num_batches_tracked.item<std::int64_t>(), 1);
  EXPECT_TRUE(same(random_state(device_).back(), random.back()));
}

}  // namespace
}  // namespace kindling
