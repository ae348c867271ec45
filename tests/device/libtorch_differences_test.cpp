// What LibTorch's versions compute differently: docs/reference/libtorch_versions.md lists these cases. The
// values were seen with 2.13.0, 2.14.1 and 2.15.0.

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/version.h>

#include <functional>
#include <vector>

namespace kindling {
namespace {

constexpr bool kIsBelow214 = TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 14;

using Slopes = std::vector<float>;

// Returns the gradient of the sum of f(x, more…) at `x`.
Slopes gradient_of(const std::function<at::Tensor(const at::Tensor&)>& f, const Slopes& x) {
  const at::Tensor at = at::tensor(x).requires_grad_();
  f(at).sum().backward();
  const at::Tensor gradient = at.grad().contiguous();
  return {gradient.const_data_ptr<float>(), gradient.const_data_ptr<float>() + gradient.numel()};
}

TEST(LibTorchDifferences, ClampOnABoundHasTheGradientOfTheVersion) {
  const auto by_numbers = [](const at::Tensor& x) { return at::clamp(x, 0.0, 1.0); };
  const auto by_tensors = [](const at::Tensor& x) {
    return at::clamp(x, at::zeros_like(x), at::ones_like(x));
  };
  const float on_number = kIsBelow214 ? 1 : 0, on_tensor = kIsBelow214 ? 1.0F : 0.5F;
  EXPECT_EQ(gradient_of(by_numbers, {-1, 0, 0.5, 1, 2}), (Slopes{0, on_number, 1, on_number, 0}))
      << TORCH_VERSION;
  EXPECT_EQ(gradient_of(by_tensors, {-1, 0, 0.5, 1, 2}), (Slopes{0, on_tensor, 1, on_tensor, 0}))
      << TORCH_VERSION;
}

// Both are computed with clamp.
TEST(LibTorchDifferences, HingeEmbeddingLossAtItsMarginFollowsClamp) {
  const auto loss = [](const at::Tensor& x) {
    return at::hinge_embedding_loss(x, at::full_like(x, -1.0), /*margin=*/1.0);
  };
  EXPECT_EQ(gradient_of(loss, {0.5, 1, 2}), (Slopes{-1 / 3.0F, kIsBelow214 ? -1 / 3.0F : 0, 0}))
      << TORCH_VERSION;
}

TEST(LibTorchDifferences, FmaxAndFminShareATieFrom214On) {
  const auto gradients = [](auto f) {
    const at::Tensor a = at::ones({1}).requires_grad_(), b = at::ones({1}).requires_grad_();
    f(a, b).sum().backward();
    return Slopes{a.grad().item<float>(), b.grad().item<float>()};
  };
  const Slopes wanted = kIsBelow214 ? Slopes{1, 0} : Slopes{0.5, 0.5};
  EXPECT_EQ(gradients([](const auto& a, const auto& b) { return at::fmax(a, b); }), wanted) << TORCH_VERSION;
  EXPECT_EQ(gradients([](const auto& a, const auto& b) { return at::fmin(a, b); }), wanted) << TORCH_VERSION;
  // These have not changed.
  EXPECT_EQ(gradients([](const auto& a, const auto& b) { return at::maximum(a, b); }), (Slopes{0.5, 0.5}));
}

// kindling::Sgd updates such parameters one by one, in every version: LowPrecision tests it.
TEST(LibTorchDifferences, FusedSgdUpdatesBfloat16From214On) {
  constexpr std::int64_t kWholeRegisters = 64;
  const std::vector<at::Tensor> parameters{at::ones({kWholeRegisters}, at::kBFloat16)};
  at::_fused_sgd_(parameters, {at::ones({kWholeRegisters}, at::kBFloat16)}, {}, /*weight_decay=*/0.0,
                  /*momentum=*/0.0, /*lr=*/0.5, /*dampening=*/0.0, /*nesterov=*/false, /*maximize=*/false,
                  /*is_first_step=*/false);
  const at::Tensor wanted = at::full({kWholeRegisters}, kIsBelow214 ? 1.0 : 0.5, at::kBFloat16);
  EXPECT_TRUE(parameters[0].equal(wanted)) << TORCH_VERSION << ": " << parameters[0];
}

}  // namespace
}  // namespace kindling
