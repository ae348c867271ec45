// Kindling's pooling against LibTorch's: bit-identical results, including indices.
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "graph/kernels/native_kernel.h"

namespace kindling {
namespace {

constexpr auto kPlanes = at::MemoryFormat::Contiguous, kChannelsLast = at::MemoryFormat::ChannelsLast;

// The form that the operator takes.
struct PoolingWindow {
  std::vector<std::int64_t> kernel, stride{}, padding{0}, dilation{1};
  bool ceil_mode = false;
};

torch::jit::Stack max_pool_of(const at::Tensor& x, const PoolingWindow& window) {
  return {x, window.kernel, window.stride, window.padding, window.dilation, window.ceil_mode};
}

const c10::OperatorHandle& max_pool() {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::max_pool2d_with_indices", "");
  return op;
}

bool has_bits_of(const at::Tensor& one, const at::Tensor& other) {
  const at::Tensor a = one.contiguous(), b = other.contiguous();
  return a.sizes() == b.sizes() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

std::vector<at::Tensor> pooled(const at::Tensor& x, const PoolingWindow& window) {
  torch::jit::Stack stack = max_pool_of(x, window);
  max_pool().callBoxed(stack);
  return {stack[0].toTensor(), stack[1].toTensor()};
}

// Expects results bit-identical to LibTorch's in memory that held other numbers; returns whether there is a
// node.
bool pools_to_the_bit(const at::Tensor& x, const PoolingWindow& window) {
  const std::vector<at::Tensor> expected = pooled(x, window);
  const std::vector<at::Tensor> found{at::full_like(expected[0], 77), at::full_like(expected[1], -5)};
  EXPECT_EQ(found[0].strides(), expected[0].strides());
  const auto node = native_kernel(max_pool(), max_pool_of(x, window), found);
  if (node == nullptr) return false;
  node->run();
  EXPECT_TRUE(has_bits_of(found[0], expected[0]) && has_bits_of(found[1], expected[1]))
      << x.sizes() << ", strides " << x.strides() << ", kernel " << window.kernel << ", stride "
      << window.stride << ", padding " << window.padding << ", dilation " << window.dilation
      << (window.ceil_mode ? ", ceil" : "");
  return true;
}

const std::vector<PoolingWindow>& all_windows() {
  static const std::vector<PoolingWindow> windows{
      {.kernel = {2}},
      {.kernel = {2, 2}, .stride = {2, 2}, .ceil_mode = true},
      {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}},
      {.kernel = {3}, .stride = {2}, .padding = {1}, .ceil_mode = true},
      {.kernel = {3, 2}, .stride = {1, 2}, .padding = {1, 0}},
      {.kernel = {2, 3}, .padding = {0, 1}},
      {.kernel = {2}, .stride = {3}},
      {.kernel = {2}, .stride = {1}, .dilation = {2}},
      {.kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 1}, .dilation = {2, 3}, .ceil_mode = true},
      {.kernel = {1}},
      {.kernel = {5, 4}, .stride = {1, 3}, .padding = {2, 2}}};
  return windows;
}

// A quarter of them special; the rest such that many are equal.
at::Tensor strange_numbers(at::IntArrayRef sizes, unsigned seed) {
  using Limits = std::numeric_limits<float>;
  const std::array special{0.F,
                           -0.F,
                           Limits::infinity(),
                           -Limits::infinity(),
                           Limits::lowest(),
                           Limits::denorm_min(),
                           -Limits::denorm_min(),
                           Limits::quiet_NaN(),
                           -Limits::quiet_NaN(),
                           std::bit_cast<float>(0x7fd10000U),  // other NaNs
                           std::bit_cast<float>(0xffe30000U),
                           std::bit_cast<float>(0x7f810000U)};  // a signalling one
  std::mt19937 random(seed);
  at::Tensor numbers = at::empty(sizes);
  float* const data = numbers.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < numbers.numel(); ++i)
    data[i] = random() % 4 == 0 ? special[random() % special.size()]
                                : static_cast<float>(static_cast<int>(random() % 5) - 2);
  return numbers;
}

// A conversion by LibTorch changes the bits of a signalling NaN.
at::Tensor halved(const at::Tensor& numbers) {
  at::Tensor half = at::empty(numbers.sizes(), at::kBFloat16);
  const auto* const from = static_cast<const std::uint32_t*>(numbers.const_data_ptr());
  auto* const to = static_cast<std::uint16_t*>(half.mutable_data_ptr());
  for (std::int64_t i = 0; i < numbers.numel(); ++i) to[i] = static_cast<std::uint16_t>(from[i] >> 16);
  return half;
}

TEST(NativePooling, IsBitIdenticalForAllWindowsInBothLayouts) {
  int num_images = 0, num_nodes = 0;
  for (const PoolingWindow& window : all_windows())
    for (const std::int64_t batch : {1, 3})
      for (const std::int64_t channels : {4, 5, 7, 8, 10, 16, 20, 31})
        for (const auto& [height, width] : {std::pair{5, 5}, {6, 9}, {8, 4}})
          for (const auto format : {kPlanes, kChannelsLast}) {
            const at::Tensor x = at::randn({batch, channels, height, width}).contiguous(format);
            ++num_images;
            num_nodes += pools_to_the_bit(x, window) ? 1 : 0;
            EXPECT_TRUE(pools_to_the_bit(x.to(at::kBFloat16), window));
          }
  EXPECT_EQ(num_nodes, num_images);
}

TEST(NativePooling, IsBitIdenticalForNaNsAndTies) {
  unsigned seed = 0;
  for (const PoolingWindow& window : all_windows())
    for (const std::int64_t channels : {4, 7, 18, 43})
      for (const auto format : {kPlanes, kChannelsLast}) {
        const at::Tensor x = strange_numbers({2, channels, 6, 7}, ++seed);
        EXPECT_TRUE(pools_to_the_bit(x.contiguous(format), window));
        EXPECT_TRUE(pools_to_the_bit(halved(x).contiguous(format), window));
      }
}

TEST(NativePooling, ReturnsTheFirstIndexIfAllAreNegativeInfinity) {
  for (const PoolingWindow& window : all_windows())
    for (const auto format : {kPlanes, kChannelsLast})
      for (const auto dtype : {at::kFloat, at::kBFloat16}) {
        const at::Tensor x =
            at::full({2, 6, 5, 7}, -std::numeric_limits<float>::infinity(), dtype).contiguous(format);
        EXPECT_TRUE(pools_to_the_bit(x, window));
      }
}

TEST(NativePooling, TakesSingleImagesAndPartsOfMemory) {
  for (const PoolingWindow& window : all_windows()) {
    EXPECT_TRUE(pools_to_the_bit(at::randn({5, 6, 7}), window));
    EXPECT_TRUE(pools_to_the_bit(at::randn({4, 5, 6, 7}).narrow(0, 1, 3), window));
    EXPECT_TRUE(pools_to_the_bit(at::randn({4, 5, 6, 7}).contiguous(kChannelsLast).narrow(0, 1, 3), window));
  }
}

// If sizes are 1, strides may match both layouts or neither.
TEST(NativePooling, AcceptsAmbiguousLayouts) {
  for (const PoolingWindow& window :
       {PoolingWindow{.kernel = {1}}, {.kernel = {3}, .stride = {1}, .padding = {1}}})
    for (const auto format : {kPlanes, kChannelsLast})
      for (const auto& sizes :
           {std::array<std::int64_t, 4>{6, 1, 5, 4}, {3, 9, 1, 1}, {1, 9, 1, 4}, {2, 9, 4, 1}, {8, 1, 1, 1}})
        EXPECT_TRUE(pools_to_the_bit(at::randn(sizes).to(at::kFloat, false, /*copy=*/true, format), window));
}

// Native loops use one thread; their speedup on one thread differs.
TEST(NativePooling, LeavesLargeTensorsToMultithreadedLibTorch) {
  const int num_threads = at::get_num_threads();
  const PoolingWindow window{.kernel = {2}};
  const at::Tensor planes = at::randn({4, 16, 24, 24}),
                   channels = at::randn({5, 12, 24, 24}).contiguous(kChannelsLast),
                   full = planes.contiguous(kChannelsLast);
  for (const auto& [threads, takes_channels, takes_planes] :
       {std::tuple{1, true, true}, {2, true, true}, {3, false, true}, {8, false, true}, {9, false, false}}) {
    SCOPED_TRACE(threads);
    at::set_num_threads(threads);
    EXPECT_EQ(pools_to_the_bit(planes, window), takes_planes);
    EXPECT_EQ(pools_to_the_bit(channels, window), takes_channels);
    EXPECT_EQ(pools_to_the_bit(channels.to(at::kBFloat16), window), takes_channels);
    EXPECT_FALSE(pools_to_the_bit(full, window));  // it fills registers
    EXPECT_TRUE(pools_to_the_bit(planes.narrow(0, 0, 2), window));
    EXPECT_TRUE(pools_to_the_bit(full.narrow(0, 0, 2), window));
  }
  at::set_num_threads(num_threads);
}

TEST(NativePooling, LeavesTheRestToLibTorch) {
  const PoolingWindow window{.kernel = {2}};
  EXPECT_FALSE(pools_to_the_bit(at::randn({2, 4, 6, 6}, at::kDouble), window));
  EXPECT_FALSE(pools_to_the_bit(at::randn({2, 4, 6, 6}).to(at::kHalf), window));
  EXPECT_FALSE(pools_to_the_bit(at::randint(9, {2, 4, 6, 6}), window));
  EXPECT_FALSE(pools_to_the_bit(at::randn({2, 4, 6, 6}).transpose(2, 3), window));
  EXPECT_FALSE(pools_to_the_bit(at::randn({4, 2, 6, 6}).transpose(0, 1), window));
  EXPECT_FALSE(pools_to_the_bit(at::randn({2, 4, 6, 8}).narrow(3, 1, 6), window));
  EXPECT_FALSE(pools_to_the_bit(at::randn({6, 6, 4}).permute({2, 0, 1}), window));
  EXPECT_FALSE(pools_to_the_bit(at::randn({0, 4, 6, 6}), window));
  // Too few planes or channels for a register.
  EXPECT_FALSE(pools_to_the_bit(at::randn({3, 6, 6}), window));
  EXPECT_FALSE(pools_to_the_bit(at::randn({8, 3, 6, 6}).contiguous(kChannelsLast), window));
  // A window outside of the image, whose index is outside too.
  EXPECT_FALSE(pools_to_the_bit(at::randn({2, 4, 1, 1}),
                                {.kernel = {2}, .stride = {1}, .padding = {1}, .dilation = {2}}));
}

// Results of another layout than the images.
TEST(NativePooling, LeavesMixedLayoutsToLibTorch) {
  const at::Tensor x = at::randn({2, 4, 6, 6});
  const std::vector<at::Tensor> results{at::empty({2, 4, 3, 3}), at::empty({2, 4, 3, 3}, at::kLong)};
  const PoolingWindow window{.kernel = {2}};
  EXPECT_NE(native_kernel(max_pool(), max_pool_of(x, window), results), nullptr);
  EXPECT_EQ(native_kernel(max_pool(), max_pool_of(x.contiguous(kChannelsLast), window), results), nullptr);
  for (const std::size_t other : {0U, 1U}) {
    std::vector<at::Tensor> mixed = results;
    mixed[other] = mixed[other].contiguous(kChannelsLast);
    EXPECT_EQ(native_kernel(max_pool(), max_pool_of(x, window), mixed), nullptr);
  }
}

// Scatters a gradient to the indices; expects results bit-identical to LibTorch's, and returns whether there
// is a node.
bool pools_back_to_the_bit(const at::Tensor& gradient, const at::Tensor& x, const PoolingWindow& window,
                           const at::Tensor& indices) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::max_pool2d_with_indices_backward", "");
  const torch::jit::Stack arguments{
      gradient, x, window.kernel, window.stride, window.padding, window.dilation, window.ceil_mode, indices};
  torch::jit::Stack stack = arguments;
  op.callBoxed(stack);
  const at::Tensor expected = stack[0].toTensor(), found = at::full_like(expected, 77);
  EXPECT_EQ(found.strides(), expected.strides());
  const auto node = native_kernel(op, arguments, {found});
  if (node == nullptr) return false;
  node->run();
  EXPECT_TRUE(has_bits_of(found, expected)) << x.sizes() << ", strides " << x.strides() << ", kernel "
                                            << window.kernel << ", stride " << window.stride;
  return true;
}

const std::vector<PoolingWindow>& windows_apart() {
  static const std::vector<PoolingWindow> windows{
      {.kernel = {2}},
      {.kernel = {2, 2}, .stride = {2, 2}, .ceil_mode = true},
      {.kernel = {2, 3}, .padding = {0, 1}},
      {.kernel = {2}, .stride = {3}},
      {.kernel = {2}, .stride = {3, 4}, .padding = {1}, .dilation = {2, 3}},
      {.kernel = {1}}};
  return windows;
}

TEST(NativePooling, IsBitIdenticalForGradientsInBothLayouts) {
  unsigned seed = 0;
  for (const PoolingWindow& window : windows_apart())
    for (const std::int64_t channels : {1, 3, 10, 32})
      for (const auto format : {kPlanes, kChannelsLast}) {
        const at::Tensor x = at::randn({2, channels, 7, 9}).to(at::kBFloat16).contiguous(format);
        const std::vector<at::Tensor> forward = pooled(x, window);
        const at::Tensor gradient = at::randn(forward[0].sizes()).to(at::kBFloat16).contiguous(format),
                         strange = halved(strange_numbers(forward[0].sizes(), ++seed)).contiguous(format),
                         finite = at::where(strange.isnan(), 0, strange).contiguous(format);
        EXPECT_TRUE(pools_back_to_the_bit(gradient, x, window, forward[1]));
        EXPECT_TRUE(pools_back_to_the_bit(strange, x, window, forward[1]));
        EXPECT_TRUE(pools_back_to_the_bit(finite, x, window, forward[1]));
        // Two at one place, and none.
        EXPECT_TRUE(pools_back_to_the_bit(gradient, x, window, at::zeros_like(forward[1])));
        EXPECT_TRUE(pools_back_to_the_bit(gradient, x, window, at::full_like(forward[1], -1)));
      }
  const at::Tensor image = at::randn({5, 6, 7}).to(at::kBFloat16);
  const std::vector<at::Tensor> forward = pooled(image, {.kernel = {2}});
  EXPECT_TRUE(pools_back_to_the_bit(at::ones_like(forward[0]), image, {.kernel = {2}}, forward[1]));
}

// A processor that flushes them to zero does so in LibTorch's sums.
TEST(NativePooling, IsBitIdenticalForSubnormalGradients) {
  const at::Tensor x = at::randn({2, 4, 6, 6}).to(at::kBFloat16);
  const std::vector<at::Tensor> forward = pooled(x, {.kernel = {2}});
  for (const float number : {1e-39F, -1e-39F, 1e-45F, 1.2e-38F}) {
    const at::Tensor gradient = at::full_like(forward[0], number);
    for (const bool flushes : {false, true}) {
      at::globalContext().setFlushDenormal(flushes);
      EXPECT_TRUE(pools_back_to_the_bit(gradient, x, {.kernel = {2}}, forward[1]));
    }
    at::globalContext().setFlushDenormal(false);
  }
}

TEST(NativePooling, LeavesGradientsOfOverlappingWindowsToLibTorch) {
  const auto is_own = [](const at::Tensor& x, const PoolingWindow& window,
                         at::MemoryFormat of_gradient = kPlanes) {
    const std::vector<at::Tensor> forward = pooled(x, window);
    return pools_back_to_the_bit(at::ones_like(forward[0]).contiguous(of_gradient), x, window, forward[1]);
  };
  const at::Tensor x = at::randn({2, 4, 9, 9}), half = x.to(at::kBFloat16);
  EXPECT_TRUE(is_own(half, {.kernel = {2}}));
  EXPECT_FALSE(is_own(half, {.kernel = {3}, .stride = {2}}));
  EXPECT_FALSE(is_own(half, {.kernel = {2, 3}, .stride = {2}}));
  EXPECT_FALSE(is_own(half, {.kernel = {3, 2}, .stride = {2}}));
  EXPECT_FALSE(is_own(half, {.kernel = {2}, .dilation = {2}}));
  EXPECT_FALSE(is_own(half, {.kernel = {2}}, kChannelsLast));
  EXPECT_FALSE(is_own(half.contiguous(kChannelsLast), {.kernel = {2}}));
  EXPECT_FALSE(is_own(x, {.kernel = {2}}));
  EXPECT_FALSE(is_own(half.narrow(0, 0, 0), {.kernel = {2}}));
}

TEST(NativePooling, LeavesLargeGradientsToMultithreadedLibTorch) {
  const int num_threads = at::get_num_threads();
  const PoolingWindow window{.kernel = {2}};
  for (const int threads : {1, 2})
    for (const std::int64_t batch : {2, 4}) {
      at::set_num_threads(threads);
      const at::Tensor x = at::randn({batch, 16, 24, 24}).to(at::kBFloat16);
      const std::vector<at::Tensor> forward = pooled(x, window);
      EXPECT_EQ(pools_back_to_the_bit(at::ones_like(forward[0]), x, window, forward[1]),
                threads == 1 || batch == 2);
    }
  at::set_num_threads(num_threads);
}

}  // namespace
}  // namespace kindling
