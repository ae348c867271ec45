#include "kindling/optim/clip.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "kindling/base/error.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

class ClipGradNorm : public OnDevice {
 protected:
  // Norm 13 together: 3² + 4² + 12² = 13².
  const std::vector<at::Tensor> gradients_{at::tensor({3.f, 4.f}), at::full({1, 1}, 12.f)};
  std::vector<at::Tensor> there() const { return {gradients_[0].to(device_), gradients_[1].to(device_)}; }
};
KINDLING_RUN_ON_DEVICES(ClipGradNorm);

TEST_P(ClipGradNorm, ScalesAllByTheirCommonNorm) {
  const auto gradients = there();
  const at::Tensor norm = clip_grad_norm(gradients, 6.5);
  EXPECT_EQ(norm.device(), device_);
  EXPECT_TRUE(close(norm, at::scalar_tensor(13, at::kFloat), 1e-6));
  // The constant 1e-6 added to the norm and float rounding, both below 1e-6 of the value.
  EXPECT_TRUE(close(gradients[0], at::tensor({1.5f, 2.f}), 1e-6));
  EXPECT_TRUE(close(gradients[1], at::full({1, 1}, 6.f), 1e-6));
}

TEST_P(ClipGradNorm, KeepsSmallGradientsBitIdentical) {
  const auto gradients = there();
  clip_grad_norm(gradients, 13.1);
  EXPECT_TRUE(same(gradients[0], gradients_[0]));
  EXPECT_TRUE(same(gradients[1], gradients_[1]));
}

TEST_P(ClipGradNorm, ZeroGradientsStayZero) {
  const std::vector<at::Tensor> zeros = {at::zeros({3}, at::device(device_))};
  EXPECT_TRUE(same(clip_grad_norm(zeros, 1), at::scalar_tensor(0, at::kFloat)));
  EXPECT_TRUE(same(zeros[0], at::zeros({3})));
}

TEST(ClipOfNothing, HasNoNorm) { EXPECT_FALSE(clip_grad_norm({}, 1).defined()); }

TEST(ClipOfParameters, IsRefusedAndScalesNothing) {
  const std::vector<at::Tensor> parameters{at::ones({2}), at::full({3}, 7.0).requires_grad_()};
  const std::string text = error_text<Error>([&] { clip_grad_norm(parameters, 1.0); });
  EXPECT_NE(text.find("tensor 1 requires a gradient"), std::string::npos) << text;
  EXPECT_TRUE(same(parameters[1].detach(), at::full({3}, 7.0)));
}

class ClipGradValue : public OnDevice {};
KINDLING_RUN_ON_DEVICES(ClipGradValue);

// As torch.nn.utils.clip_grad_value_: infinite numbers are limited, too.
TEST_P(ClipGradValue, LimitsEachNumber) {
  const at::Tensor gradient = at::tensor({-3.f, -0.5f, 0.f, 2.5f, INFINITY, NAN}).to(device_);
  clip_grad_value(std::array{gradient}, 1.5);
  EXPECT_TRUE(same(gradient.slice(0, 0, 5).cpu(), at::tensor({-1.5f, -0.5f, 0.f, 1.5f, 1.5f})));
  EXPECT_TRUE(gradient[5].isnan().item<bool>());
  clip_grad_value({}, 1);
  EXPECT_THROW(clip_grad_value(std::array{at::ones({2}).to_sparse()}, 1), Error);
}

}  // namespace
}  // namespace kindling
