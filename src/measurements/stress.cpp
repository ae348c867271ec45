#include "measurements/stress.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "tensors/run_difference.h"

namespace kindling {
namespace {

constexpr std::int64_t kImages = 32, kChannels = 16, kSize = 32, kClasses = 10, kMatrix = 384;

bool are_same(const std::vector<at::Tensor>& ones, const std::vector<at::Tensor>& others) {
  return std::ranges::equal(ones, others, [](const at::Tensor& one, const at::Tensor& other) {
    return !at::any(at::ne(bits_of(one), bits_of(other))).item<bool>();
  });
}

at::Generator seeded_generator() { return at::make_generator<at::CPUGeneratorImpl>(20'240'917); }

}  // namespace

StressWork stress_steps(Device device) {
  at::Generator generator = seeded_generator();
  const auto normal = [&](at::IntArrayRef sizes, at::ScalarType dtype) {
    return at::randn(sizes, generator, at::dtype(dtype)).to(device);
  };
  const at::Tensor images = normal({kImages, 3, kSize, kSize}, at::kFloat),
                   kernel = normal({kChannels, 3, 3, 3}, at::kFloat).mul_(0.2),
                   weight = normal({kClasses, kChannels * kSize * kSize}, at::kFloat).mul_(0.01),
                   labels = at::arange(kImages, at::dtype(at::kLong).device(device)).remainder(kClasses),
                   left = normal({kMatrix, kMatrix}, at::kDouble),
                   right = normal({kMatrix, kMatrix}, at::kDouble);
  kernel.requires_grad_();
  weight.requires_grad_();
  return [=] {
    const at::AutoGradMode with_gradients(true);
    const at::Tensor features = at::conv2d(images, kernel, {}, 1, 1).relu().flatten(1);
    const at::Tensor loss = at::cross_entropy_loss(at::linear(features, weight), labels);
    loss.backward();
    std::vector<at::Tensor> results{loss.detach(), kernel.grad(), weight.grad(), at::mm(left, right)};
    kernel.mutable_grad() = weight.mutable_grad() = at::Tensor();
    return results;
  };
}

StressWork stress_memory(Device device, std::int64_t bytes) {
  at::Generator generator = seeded_generator();
  const std::int64_t num_numbers = std::max<std::int64_t>(bytes / 8, 1);
  const at::Tensor block = at::empty({std::min<std::int64_t>(num_numbers, 1 << 20)}, at::kLong)
                               .random_(generator)
                               .to(device),
                   numbers = at::empty({num_numbers}, at::dtype(at::kLong).device(device));
  return [=] {
    // Each round writes the memory again, and sums up what it reads.
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> sums;
    for (std::int64_t start = 0; start < num_numbers; start += block.size(0)) {
      const std::int64_t length = std::min(block.size(0), num_numbers - start);
      numbers.narrow(0, start, length).copy_(block.narrow(0, 0, length));
    }
    for (std::int64_t start = 0; start < num_numbers; start += block.size(0))
      sums.push_back(numbers.narrow(0, start, std::min(block.size(0), num_numbers - start)).sum());
    return sums;
  };
}

StressResult stress(const StressWork& work, double seconds) {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<at::Tensor> expected = work();
  StressResult result{.num_rounds = 1};
  while (result.num_rounds < 2 || result.seconds < seconds) {
    ++result.num_rounds;
    if (!are_same(expected, work()) && result.num_wrong++ == 0) result.first_wrong = result.num_rounds;
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  return result;
}

}  // namespace kindling
