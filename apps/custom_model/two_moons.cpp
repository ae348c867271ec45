#include "two_moons.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <numbers>

TwoMoons::TwoMoons(TwoMoonsOptions options, kindling::DataOptions data_options)
    : kindling::DataModule(std::move(data_options)) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(1);
  const std::int64_t n = options.num_samples;
  const at::Tensor labels = at::arange(n).remainder(2);
  const at::Tensor angle = at::rand({n}, generator) * std::numbers::pi;
  const at::Tensor lower = labels.to(at::kFloat);  // the second moon is flipped and shifted
  const at::Tensor x = angle.cos() * (1 - 2 * lower) + lower;
  const at::Tensor y = angle.sin() * (1 - 2 * lower) + lower * 0.5;
  const at::Tensor points = at::stack({x, y}, 1) + at::randn({n, 2}, generator) * options.noise;
  const std::int64_t num_train = n - n / 5;
  train_ = {points.narrow(0, 0, num_train), labels.narrow(0, 0, num_train)};
  val_ = {points.narrow(0, num_train, n - num_train), labels.narrow(0, num_train, n - num_train)};
}
