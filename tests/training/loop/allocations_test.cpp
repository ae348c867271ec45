// How often the host allocates in a step of a small model.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "kindling/models/mlp.h"
#include "kindling/optim/adam.h"
#include "kindling/training/callback.h"
#include "kindling/training/trainer.h"
#include "support/allocation_count.h"
#include "support/scratch.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

// After each batch of a training.
class AllocationCounter : public Callback {
 public:
  AllocationCounter() { after_batch.reserve(64); }
  void on_train_batch_end(Trainer&, Module&) override { after_batch.push_back(*num_allocations()); }
  std::vector<std::int64_t> after_batch;
};

constexpr std::int64_t kSamples = 8, kFeatures = 64;

std::int64_t allocations_of_a_step(TrainerOptions options) {
  TensorData data({at::rand({10 * kSamples, kFeatures}), at::ones({10 * kSamples}, at::kLong)}, {},
                  {.batch_size = kSamples});
  const auto counter = std::make_shared<AllocationCounter>();
  options.max_epochs = 1;
  options.callbacks = {counter};
  Trainer(std::move(options)).fit(std::make_shared<Mlp>(), data);
  return counter->after_batch.at(8) - counter->after_batch.at(7);
}

// The same numbers by the same operators, without loader, trainer and log.
std::int64_t allocations_by_hand() {
  const at::Tensor x = at::rand({10 * kSamples, kFeatures}), y = at::ones({10 * kSamples}, at::kLong);
  const auto model = std::make_shared<Mlp>();
  model->forward(x);  // finds the shapes
  Adam optimizer(ParameterGroups(*model), {});
  const at::Tensor rows = at::arange(kSamples, at::kLong);
  std::int64_t before = 0;
  for (int step = 0; step < 5; ++step) {
    before = *num_allocations();
    const at::Tensor inputs = x.index_select(0, rows), labels = y.index_select(0, rows);
    optimizer.zero_grad();
    const at::Tensor outputs = model->forward(inputs);
    const at::Tensor loss = model->loss(outputs, labels);
    const at::Tensor right = outputs.argmax(1).eq(labels).sum();
    loss.backward();
    optimizer.step();
  }
  return *num_allocations() - before;
}

class Allocations : public testing::Test {
 protected:
  void SetUp() override {
    if (!num_allocations()) GTEST_SKIP() << "the sanitizers have an operator new of their own";
  }
  const Scratch scratch_;
};

TEST_F(Allocations, AreCounted) {
  const std::int64_t before = *num_allocations();
  const auto one = std::make_unique<int>(1);
  const std::vector<int> two(3);
  EXPECT_EQ(*num_allocations() - before, 2);
  const at::Tensor zeros = at::zeros({2, 2});
  EXPECT_GT(*num_allocations() - before, 2);  // of LibTorch's
}

TEST_F(Allocations, InAStepAreNoMoreThanByHand) {
  EXPECT_LE(allocations_of_a_step({}), allocations_by_hand());
}

// Inspection costs nothing while it is off, and is measurable while it is on.
TEST_F(Allocations, DoNotIncreaseWithInspectionOff) {
  const std::int64_t plain = allocations_of_a_step({});
  const auto folder = scratch_ / "profile";
  EXPECT_EQ(allocations_of_a_step({.profile = false, .profile_dir = folder}), plain);
  EXPECT_GT(allocations_of_a_step({.profile = true, .profile_active = 20, .profile_dir = folder}), plain);
}

}  // namespace
}  // namespace kindling
