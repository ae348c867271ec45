#include "graph/replay/replay.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <optional>
#include <random>

#include "device/random_state.h"
#include "graph/recording/operator_recorder.h"

namespace kindling {
namespace {

using Tensors = std::vector<at::Tensor>;
using Work = std::function<Tensors(const Tensors& inputs)>;

bool same_bits(const Tensors& one, const Tensors& other) {
  return std::ranges::equal(one, other, [](const at::Tensor& a, const at::Tensor& b) {
    if (!a.defined() || !b.defined()) return a.defined() == b.defined();
    const at::Tensor x = a.resolve_conj().resolve_neg().contiguous(),
                     y = b.resolve_conj().resolve_neg().contiguous();
    return a.sizes() == b.sizes() && a.strides() == b.strides() && a.scalar_type() == b.scalar_type() &&
           std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
  });
}

Tensors copies(const Tensors& tensors) {
  Tensors copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.defined() ? tensor.clone() : tensor);
  return copies;
}

Recording record(const Work& work, const Tensors& inputs, const Tensors& known = {}) {
  EXPECT_EQ(OperatorRecorder::capture_obstacle(), "");
  const at::NoGradGuard no_grad;
  Recording recording;
  recording.add_inputs(inputs);
  for (const at::Tensor& tensor : known) recording.know(tensor);
  {
    Tensors results;
    {
      const OperatorRecorder recorder(recording);
      results = work(inputs);
    }
    recording.num_forward_calls = recording.calls.size();
    recording.add_outputs(results);
  }
  if (recording.keeps_more_than_outputs()) recording.refuse("it keeps tensors");
  return recording;
}

// Work that has been recorded twice, as every replay requires.
struct Recorded {
  std::string refusal;
  Recording recording;
};
Recorded record_twice(const Work& work, const Tensors& inputs, const Tensors& known = {}) {
  Recording earlier = record(work, inputs, known), later = record(work, inputs, known);
  std::string refusal = earlier.refusal.empty() ? difference(earlier, later) : earlier.refusal;
  return {std::move(refusal), std::move(later)};
}

std::unique_ptr<Replay> replay_of(const Work& work, const Tensors& inputs, const Tensors& known = {}) {
  const Recorded recorded = record_twice(work, inputs, known);
  EXPECT_EQ(recorded.refusal, "");
  return std::make_unique<Replay>(recorded.recording, inputs);
}

void run(Replay& replay, const Tensors& inputs) {
  replay.set_inputs(inputs);
  replay.run_forward();
  replay.run_backward();
}

// For work without side effects: a replay with these and other inputs gives bit-identical results.
std::unique_ptr<Replay> expect_same_work(const Work& work, const Tensors& inputs) {
  auto replay = replay_of(work, inputs);
  Tensors others;
  for (const at::Tensor& input : inputs)
    others.push_back(at::empty_strided(input.sizes(), input.strides(), input.options()).copy_(input * 3 - 1));
  for (const Tensors& given : {inputs, others, inputs}) {
    run(*replay, given);
    EXPECT_TRUE(same_bits(replay->outputs(), work(given)));
  }
  return replay;
}

TEST(Replay, ComputesWithOtherInputs) {
  const auto replay = expect_same_work(
      [](const Tensors& in) {
        return Tensors{in[0].mm(in[1]).relu().exp().sum(), in[0].sin()};
      },
      {at::randn({4, 3}), at::randn({3, 5})});
  EXPECT_EQ(replay->num_nodes(), 5U);
}

TEST(Replay, RunsNativeKernelsUnlessTheyAreOff) {
  const Work work = [](const Tensors& in) { return Tensors{in[0].mm(in[1]).relu().exp()}; };
  const Tensors inputs{at::randn({4, 3}), at::randn({3, 5})};
  const Recording recording = record_twice(work, inputs).recording;
  Replay native(recording, inputs), libtorchs(recording, inputs, NativeKernels::off);
  run(native, inputs);
  run(libtorchs, inputs);
  EXPECT_EQ(native.num_native_kernels(), 2U);  // mm, relu
  EXPECT_EQ(libtorchs.num_native_kernels(), 0U);
  EXPECT_TRUE(same_bits(native.outputs(), work(inputs)));
  EXPECT_TRUE(same_bits(libtorchs.outputs(), work(inputs)));
}

TEST(Replay, ReadsInputsInAnyLayout) {
  expect_same_work([](const Tensors& in) { return Tensors{in[0] + in[1]}; },
                   {at::randn({6, 4}).t(), at::randn({4, 9}).narrow(1, 2, 6)});
}

TEST(Replay, NeedsNoNodesForViews) {
  const auto replay = expect_same_work(
      [](const Tensors& in) {
        return Tensors{in[0].t().narrow(0, 1, 2).unsqueeze(0).expand({3, 2, 4}).sin()};
      },
      {at::randn({4, 3})});
  EXPECT_EQ(replay->num_nodes(), 1U);
}

TEST(Replay, ReturnsViewsAsResults) {
  expect_same_work(
      [](const Tensors& in) {
        const at::Tensor x = in[0] * 2;
        return Tensors{x.t(), x, x.select(0, 1), at::Tensor(), in[0].t()};
      },
      {at::randn({4, 3})});
}

// conj() and the imaginary part of a conjugate only mark their tensors.
TEST(Replay, ReadsLazyConjugatesAndNegatives) {
  const auto replay = expect_same_work(
      [](const Tensors& in) {
        const at::Tensor z = at::complex(in[0], in[1]), lazy = z.conj();
        return Tensors{z.mm(lazy),   lazy.mm(z.t()), lazy * 2,       at::imag(lazy) + 1,
                       lazy.clone(), at::real(lazy), at::imag(lazy), lazy};
      },
      {at::randn({4, 4}), at::randn({4, 4})});
  EXPECT_TRUE(replay->outputs()[7].is_conj());
  EXPECT_TRUE(replay->outputs()[6].is_neg());
}

TEST(Replay, WritesInPlace) {
  expect_same_work(
      [](const Tensors& in) {
        at::Tensor x = in[0] * 2;
        x.add_(1).select(0, 1).mul_(3);
        const at::Tensor before = x.clone();
        x.t().neg_();
        return Tensors{x, before};
      },
      {at::randn({4, 3})});
}

// Neither operator can write to given memory.
TEST(Replay, AdoptsMemoryThatOperatorsAllocate) {
  const auto replay = expect_same_work(
      [](const Tensors& in) {
        const at::Tensor rolled = in[0].roll(1, 0);
        const Tensors parts = at::unsafe_split(rolled * 2, 2);
        return Tensors{rolled.roll(2, 1) * 2, parts[0] + parts[1]};
      },
      {at::randn({4, 3})});
  EXPECT_FALSE(replay->is_lent());
}

TEST(Replay, DrawsItsRandomNumbersFromTheSameGenerator) {
  const Work work = [](const Tensors& in) {
    at::Tensor mask = at::empty_like(in[0]).bernoulli_(0.5);
    return Tensors{in[0] * mask, at::rand({3}) + 1, std::get<0>(at::native_dropout(in[0], 0.3, true))};
  };
  const Tensors inputs{at::randn({5, 7})};
  const auto replay = replay_of(work, inputs);
  for (const std::uint64_t seed : {1, 2}) {
    at::manual_seed(seed);
    run(*replay, inputs);
    const Tensors found = copies(replay->outputs());
    const Tensors state = copies(random_state(cpu()));
    at::manual_seed(seed);
    EXPECT_TRUE(same_bits(found, work(inputs)));
    EXPECT_TRUE(same_bits(state, random_state(cpu())));
  }
}

// Unused random numbers advance the generator too.
TEST(Replay, DrawsUnusedRandomNumbers) {
  const Work work = [](const Tensors& in) {
    at::rand({3});
    return Tensors{in[0] + at::rand({4})};
  };
  const Tensors inputs{at::randn({4})};
  const auto replay = replay_of(work, inputs);
  at::manual_seed(3);
  run(*replay, inputs);
  const Tensors found = copies(replay->outputs());
  at::manual_seed(3);
  EXPECT_TRUE(same_bits(found, work(inputs)));
}

TEST(Replay, OmitsUnneededCalls) {
  const auto replay = expect_same_work(
      [](const Tensors& in) {
        in[0].sin().cos();
        return Tensors{in[0] * 2};
      },
      {at::randn({4})});
  EXPECT_EQ(replay->num_nodes(), 1U);
}

TEST(Replay, CreatesACopiedResultAtItsDestination) {
  const auto copied = [](const at::Tensor& x) { return at::empty_like(x).copy_(x); };
  const auto shared =
      expect_same_work([&](const Tensors& in) { return Tensors{copied(in[0].sin())}; }, {at::randn({4})});
  EXPECT_EQ(shared->num_nodes(), 1U);
  const auto still_read = expect_same_work(
      [&](const Tensors& in) {
        const at::Tensor x = in[0].sin();
        at::Tensor copy = copied(x);
        copy.neg_();
        return Tensors{copy, x.cos()};
      },
      {at::randn({4})});
  EXPECT_EQ(still_read->num_nodes(), 4U);
  const auto both_wanted = expect_same_work(
      [&](const Tensors& in) {
        const at::Tensor x = in[0].sin();
        return Tensors{x, copied(x)};
      },
      {at::randn({4})});
  EXPECT_EQ(both_wanted->num_nodes(), 2U);
  const auto otherwise_laid_out = expect_same_work(
      [&](const Tensors& in) {
        return Tensors{at::empty({3, 4}).copy_((in[0].sin()).t())};
      },
      {at::randn({4, 3})});
  EXPECT_EQ(otherwise_laid_out->num_nodes(), 2U);
}

// Parameters are read as they are now, and a run changes buffers as the work does; making a replay does not.
TEST(Replay, ReadsAndChangesExistingTensors) {
  const at::Tensor weight = at::randn({4}), count = at::zeros({});
  const Work work = [&](const Tensors& in) {
    count.add_(1);
    return Tensors{in[0] * weight, count * 2};
  };
  const Tensors inputs{at::randn({4})};
  const auto replay = replay_of(work, inputs, {weight, count});
  EXPECT_EQ(count.item().toDouble(), 2);  // from the recordings
  ASSERT_EQ(replay->changed().size(), 1U);
  EXPECT_EQ(replay->changed().front().const_data_ptr(), count.const_data_ptr());
  weight.fill_(0.25);
  run(*replay, inputs);
  EXPECT_EQ(count.item().toDouble(), 3);
  EXPECT_TRUE(same_bits(replay->outputs(), {inputs[0] * 0.25, at::full({}, 6.F)}));
}

TEST(Replay, DetectsOtherOwnersOfItsResults) {
  const auto replay = replay_of(
      [](const Tensors& in) {
        return Tensors{in[0] * 2, in[0] + 1};
      },
      {at::randn({4})});
  EXPECT_FALSE(replay->is_lent());
  at::Tensor held = replay->outputs()[1];
  EXPECT_TRUE(replay->is_lent());
  std::optional<c10::Storage> memory = held.storage();
  held.reset();
  EXPECT_TRUE(replay->is_lent());
  memory.reset();
  EXPECT_FALSE(replay->is_lent());
}

TEST(Replay, DetectsAReleasedTensor) {
  at::Tensor table = at::randn({4}), kept = table;
  const auto replay = replay_of([&](const Tensors& in) { return Tensors{in[0] * table}; }, {at::randn({4})});
  EXPECT_FALSE(replay->has_lost_tensors());
  kept.reset();
  EXPECT_FALSE(replay->has_lost_tensors());
  table = at::randn({4});
  EXPECT_TRUE(replay->has_lost_tensors());
}

TEST(Replay, SharesMemoryByTime) {
  constexpr std::int64_t kCount = 1 << 12;
  constexpr std::size_t kBytes = kCount * sizeof(float);
  const auto chain = expect_same_work(
      [](const Tensors& in) {
        at::Tensor x = in[0];
        for (int i = 0; i < 10; ++i) x = x.sin();
        return Tensors{x.sum()};
      },
      {at::randn({kCount})});
  EXPECT_EQ(chain->num_bytes(), 2 * kBytes);
  const auto tree = expect_same_work(
      [](const Tensors& in) {
        const at::Tensor a = in[0].sin(), b = in[0].cos(), c = in[0].exp();
        return Tensors{a.mul(b).add(c)};
      },
      {at::randn({kCount})});
  EXPECT_EQ(tree->num_bytes(), 4 * kBytes);  // a, b, c, a·b
}

TEST(Replay, ReleasesMemoryUntilTheNextRun) {
  const Work work = [](const Tensors& in) { return Tensors{in[0].sin().cos()}; };
  const Tensors inputs{at::randn({64})};
  const auto replay = replay_of(work, inputs);
  for (const auto memory : {Replay::Memory::intermediate, Replay::Memory::all}) {
    run(*replay, inputs);
    replay->release(memory);
    EXPECT_EQ(replay->outputs().front().storage().data() == nullptr, memory == Replay::Memory::all);
  }
  run(*replay, inputs);
  const at::Tensor held = replay->outputs().front();
  replay->release(Replay::Memory::all);
  EXPECT_TRUE(same_bits({held}, work(inputs)));  // the result has another owner
}

TEST(Replay, HasNoMemoryForLargeResultsOfTheBackwardDuringTheForward) {
  const Work work = [](const Tensors& in) {
    return Tensors{in[0].sin().sum(), in[0].exp(), in[0].narrow(0, 0, 4).exp()};
  };
  const Tensors inputs{at::randn({1 << 15})};
  Recording recording = record_twice(work, inputs).recording;
  recording.num_forward_calls = 2;  // sin, sum
  Replay replay(recording, inputs);
  const auto& outputs = replay.outputs();
  const auto has_memory = [&](std::size_t i) { return outputs[i].storage().data() != nullptr; };
  for (int i = 0; i < 3; ++i) {
    replay.run_forward();
    EXPECT_TRUE(has_memory(0));
    EXPECT_FALSE(has_memory(1));
    EXPECT_TRUE(has_memory(2));
    replay.run_backward();
    EXPECT_TRUE(same_bits(outputs, work(inputs)));
  }
  const at::Tensor held = outputs[1];
  replay.run_forward();
  EXPECT_TRUE(has_memory(1));
}

TEST(Recording, RefusesWorkThatCannotBeReplayed) {
  const Tensors inputs{at::ones({4})};
  const auto refusal = [&](const Work& work) { return record_twice(work, inputs).refusal; };
  EXPECT_EQ(refusal([](const Tensors& in) { return Tensors{in[0] * in[0].sum().item()}; }),
            "it calls aten::_local_scalar_dense, whose result the host reads");
  EXPECT_EQ(refusal([](const Tensors& in) {
              at::Tensor x = in[0] * 2;
              return Tensors{x.resize_({2})};
            }),
            "it calls aten::resize_, which changes a tensor's memory");
  EXPECT_EQ(refusal([](const Tensors&) { return Tensors{at::ones({2}).to_sparse()}; }),
            "it has a tensor that is not dense");
  const Tensors lazy{at::complex(at::ones({2}), at::ones({2})).conj()};
  EXPECT_EQ(record_twice([](const Tensors& in) { return Tensors{in[0] * 2}; }, lazy).refusal,
            "its batch has a conjugate view");
  EXPECT_EQ(refusal([](const Tensors& in) { return Tensors{in[0].t().mul_(2)}; }), "it changes its batch");
  EXPECT_EQ(refusal([kept = at::Tensor()](const Tensors& in) mutable {
              kept = in[0] * 2;
              return Tensors{kept + 1};
            }),
            "it keeps tensors");
  EXPECT_EQ(refusal([calls = 0](const Tensors& in) mutable {
              return Tensors{++calls % 2 == 0 ? in[0] * 2 : in[0] + 2};
            }),
            "its operators differ from step to step");
  EXPECT_EQ(refusal([calls = 0](const Tensors& in) mutable { return Tensors{in[0].narrow(0, 0, ++calls)}; }),
            "the arguments of aten::slice differ from step to step");
}

// Small programs of all kinds of calls over a pool of matrices, made from a seed.
class RandomWork {
 public:
  explicit RandomWork(unsigned seed) : seed_(seed) {}

  Tensors operator()(const Tensors& inputs) const {
    std::mt19937 random(seed_);
    const auto below = [&](std::size_t count) {
      return std::uniform_int_distribution<std::size_t>(0, count - 1)(random);
    };
    Tensors pool = inputs;
    const std::size_t num_calls = 3 + below(20);
    for (std::size_t i = 0; i < num_calls; ++i) {
      const std::size_t kind = below(kKinds), a = below(pool.size()), b = below(pool.size());
      const std::size_t own =
          pool.size() > inputs.size() ? inputs.size() + below(pool.size() - inputs.size()) : inputs.size();
      call(kind, pool, a, b, own);
    }
    Tensors results{pool.back()};
    for (std::size_t i = inputs.size(); i + 1 < pool.size(); ++i)
      if (below(4) == 0) results.push_back(pool[i]);
    return results;
  }

 private:
  static constexpr std::size_t kKinds = 19;

  static void call(std::size_t kind, Tensors& pool, std::size_t a, std::size_t b, std::size_t own) {
    const at::Tensor x = pool[a], y = pool[b];
    const bool has_own = own < pool.size();
    switch (kind) {
      case 0:
        return pool.push_back(x + y);
      case 1:
        return pool.push_back(x * y);
      case 2:
        return pool.push_back(x.mm(y));
      case 3:
        return pool.push_back(x.relu());
      case 4:
        return pool.push_back(x.t());
      case 5:
        return pool.push_back(at::addmm(x.select(0, 1), x, y));
      case 6:
        return pool.push_back(x.sum(0).expand({4, 4}));
      case 7:
        return pool.push_back(x.roll(1, 0));
      case 8:
        return pool.push_back(at::empty_like(x).copy_(x));
      case 9:
        return pool.push_back(x.clone());
      case 10:
        return pool.push_back(x.softmax(1));
      case 11:
        return pool.push_back(at::cat({x.narrow(0, 0, 2), y.narrow(0, 2, 2)}));
      case 12:
        return pool.push_back(at::threshold_backward(x, y, 0));
      case 13:
        return pool.push_back(x * at::rand({4, 1}));
      case 14:
        return pool.push_back(at::where(x > y, x, y));
      case 15:
        return pool.push_back(std::get<0>(x.max(1, true)) + 0.5 * y);
      default:
        break;
    }
    const bool is_given = has_own && (pool[own].is_alias_of(pool[0]) || pool[own].is_alias_of(pool[1]));
    if (!has_own || is_given || !pool[own].is_non_overlapping_and_dense()) return;
    if (kind == 16) pool[own].mul_(0.5);
    if (kind == 17) pool[own].narrow(0, 1, 2).add_(1);
    if (kind == 18) pool[own].tanh_();
  }

  unsigned seed_;
};

TEST(Replay, IsBitIdenticalForRandomWork) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    const RandomWork work(seed);
    at::manual_seed(seed);
    const Tensors inputs{at::randn({4, 4}), at::randn({4, 4})};
    const auto replay = replay_of(work, inputs);
    for (int round = 0; round < 2; ++round) {
      const Tensors others{at::randn({4, 4}), at::randn({4, 4})};
      at::manual_seed(seed);
      run(*replay, others);
      at::manual_seed(seed);
      EXPECT_TRUE(same_bits(replay->outputs(), work(others)));
    }
  }
}

}  // namespace
}  // namespace kindling
