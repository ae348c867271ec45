// The records of clipped gradients.
#include <gtest/gtest.h>

#include "support/device_under_test.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

class Clipping : public OnDevice {};
KINDLING_RUN_ON_TRAINER_DEVICES(Clipping);

// Batches {0, 1}, {2, 3}, {4}: the gradients are -0.5, -2.5, -4 as long as the weight is below 2.
TEST_P(Clipping, RecordsTheNormBeforeClipping) {
  const auto logger = std::make_shared<MemoryLogger>();
  TensorData data = ramp(5, 0, 2);
  Trainer({.max_epochs = 1,
           .num_gpus = num_gpus_wanted(),
           .gradient_clip_val = 1,
           .log_every_n_steps = 1,
           .optimizer = sgd(0.125),
           .loggers = {logger}})
      .fit(std::make_shared<Slope>(), data);
  ASSERT_EQ(logger->records().size(), 4U);
  const double norms[] = {0.5, 2.5, 4};
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_NEAR(value_of(logger->records()[i], "grad_norm"), norms[i], 1e-6);  // a square root of squares
}

}  // namespace
}  // namespace kindling
