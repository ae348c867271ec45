// Which losses are spikes, on every device.
#include "training/state/spike_detector.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kindling/base/error.h"
#include "support/device_under_test.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

constexpr float kNanLoss = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

float lower_median(std::vector<float> numbers) {
  std::ranges::sort(numbers);
  return numbers[(numbers.size() - 1) / 2];
}

// The definition, as the guide has it.
std::vector<bool> spikes_in(const std::vector<float>& losses, const SpikeOptions& options) {
  std::vector<bool> found;
  std::deque<float> window;
  for (const float loss : losses) {
    std::vector<float> finite, distances;
    for (const float one : window)
      if (std::isfinite(one)) finite.push_back(one);
    bool is_spike = false;
    if (std::ssize(finite) >= std::max<std::int64_t>(8, options.window / 2) && std::isfinite(loss)) {
      const float median = lower_median(finite);
      for (const float one : finite) distances.push_back(std::abs(one - median));
      const float spread = std::max(2 * lower_median(distances), 0x1p-10F * std::abs(median));
      is_spike = spread > 0 && loss - median > static_cast<float>(options.factor) * spread;
    }
    found.push_back(is_spike);
    window.push_back(loss);
    if (std::ssize(window) > options.window) window.pop_front();
  }
  return found;
}

std::vector<float> noise(std::size_t count, const std::function<float(float, std::size_t)>& of) {
  std::mt19937 random(3);
  std::vector<float> losses;
  for (std::size_t i = 0; i < count; ++i)
    losses.push_back(of(static_cast<float>(random()) / static_cast<float>(std::mt19937::max()), i));
  return losses;
}

struct Sequence {
  const char* name;
  std::vector<float> losses;
};
std::vector<Sequence> sequences() {
  constexpr std::size_t kCount = 160;
  return {{"uniform", noise(kCount, [](float u, std::size_t i) { return i % 37 == 36 ? 9 + u : u; })},
          {"heavy tail", noise(kCount, [](float u, std::size_t) { return 1 / (u + 1e-3F); })},
          {"ties", noise(kCount, [](float u, std::size_t) { return std::floor(4 * u * u); })},
          {"negative", noise(kCount, [](float u, std::size_t i) { return i % 50 == 49 ? 0 : u - 1000; })},
          {"mostly zero", noise(kCount, [](float u, std::size_t) { return u < 0.8F ? 0 : u; })},
          {"falling", noise(kCount, [](float u, std::size_t i) { return u + 1e4F / float(i + 1); })},
          {"rising", noise(kCount, [](float, std::size_t i) { return float(i * i); })},
          {"not finite", noise(kCount, [](float u, std::size_t i) {
             return i % 5 == 4     ? kNanLoss
                    : i % 7 == 6   ? kInfinity
                    : i % 11 == 10 ? -kInfinity
                    : i % 23 == 22 ? 40 + u
                                   : u;
           })}};
}

class SpikeDetectors : public OnDevice {
 protected:
  // On the fake accelerator the operators of a test take their time.
  bool takes_every_case() const { return device_.is_cpu(); }
  bool test(SpikeDetector& detector, float loss) const {
    if (device_.is_cpu()) return detector.test(loss);
    const at::Tensor found = at::full({}, 7, at::dtype(at::kFloat).device(device_));
    detector.test(at::full({}, loss, found.options()), found);
    return found.cpu().item<float>() == 1;
  }
};
KINDLING_RUN_ON_TRAINER_DEVICES(SpikeDetectors);

TEST_P(SpikeDetectors, FindWhatTheDefinitionSays) {
  std::int64_t num_spikes = 0;
  for (const std::int64_t window : {8, 9, 24, 100})
    for (const double factor : {1.5, 4.0})
      for (const auto& [name, losses] : sequences()) {
        if (!takes_every_case() && (window != 24 || factor != 1.5)) continue;
        const SpikeOptions options{.factor = factor, .window = window};
        const std::vector<bool> expected = spikes_in(losses, options);
        SpikeDetector detector(device_, options);
        for (std::size_t i = 0; i < losses.size(); ++i)
          ASSERT_EQ(test(detector, losses[i]), expected[i])
              << name << ", window " << window << ", loss " << i;
        num_spikes += std::ranges::count(expected, true);
      }
  EXPECT_GT(num_spikes, takes_every_case() ? 100 : 10);
}

TEST_P(SpikeDetectors, ContinueWithTheSavedLosses) {
  const SpikeOptions options{.factor = 2, .window = 24};
  for (const auto& [name, losses] : sequences())
    for (const std::size_t stop : {0, 7, 30, 61}) {
      if (!takes_every_case() && (stop != 30 || std::string(name) != "not finite")) continue;
      SpikeDetector first(device_, options), resumed(device_, options);
      for (std::size_t i = 0; i < stop; ++i) test(first, losses[i]);
      test(resumed, 5);  // is forgotten
      resumed.load(first.losses().cpu());
      EXPECT_TRUE(same(resumed.losses(), first.losses())) << name;
      for (std::size_t i = stop; i < losses.size(); ++i)
        ASSERT_EQ(test(resumed, losses[i]), test(first, losses[i])) << name << ", loss " << i;
      EXPECT_TRUE(same(resumed.losses(), first.losses())) << name;
    }
}

TEST_P(SpikeDetectors, TakeTheLatestLossesOfAnotherWindow) {
  for (const std::int64_t saved : {12, 40}) {
    SpikeDetector detector(device_, {.window = 24});
    detector.load(at::arange(saved, at::kFloat));
    const std::int64_t count = std::min<std::int64_t>(saved, 24);
    const at::Tensor losses = detector.losses().cpu();
    EXPECT_TRUE(same(losses.narrow(0, 24 - count, count), at::arange(saved - count, saved, at::kFloat)));
    EXPECT_TRUE(losses.narrow(0, 0, 24 - count).eq(kInfinity).all().item<bool>());
  }
  SpikeDetector detector(device_, {.window = 24});
  EXPECT_THROW(detector.load(at::zeros({2, 3})), CheckpointError);
  EXPECT_THROW(detector.load(at::zeros({3}, at::kLong)), CheckpointError);
}

TEST_P(SpikeDetectors, AcceptANewLevelAfterHalfAWindow) {
  const SpikeOptions options{.window = 24};
  SpikeDetector detector(device_, options);
  const std::vector<float> losses = noise(100, [](float u, std::size_t i) { return i < 50 ? u : 100 + u; });
  std::vector<std::size_t> spikes;
  for (std::size_t i = 0; i < losses.size(); ++i)
    if (test(detector, losses[i])) spikes.push_back(i);
  ASSERT_FALSE(spikes.empty());
  EXPECT_EQ(spikes.front(), 50U);
  EXPECT_LE(spikes.back(), 50U + 12U);
}

}  // namespace
}  // namespace kindling
