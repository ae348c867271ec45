#include <gtest/gtest.h>
#include <torch/nn.h>

#include "kindling/base/error.h"
#include "kindling/device/transfer_counts.h"
#include "kindling/models/small_cnn.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

class Evaluate : public OnDevice {
 protected:
  TrainerOptions options() const { return {.num_gpus = num_gpus_wanted()}; }
  const std::shared_ptr<Slope> model_ = std::make_shared<Slope>();
};
KINDLING_RUN_ON_TRAINER_DEVICES(Evaluate);

// Batches {0, 1} and {2}: with w = 0 the losses are 1 and 4.
TEST_P(Evaluate, MeansAreWeightedBySamples) {
  TensorData data = ramp(3, 3, 2);
  Trainer trainer(options());
  EXPECT_EQ(trainer.validate(model_, data), (Metrics{{"val_loss", 2}}));
  EXPECT_EQ(trainer.test(model_, data), (Metrics{{"test_loss", 2}}));
  EXPECT_EQ(model_->weight.device(), device_);
  EXPECT_TRUE(model_->is_training());  // its mode was given back
}

TEST_P(Evaluate, PredictionsComeInOrderInOneCopy) {
  TensorData data = ramp(5, 5, 2);
  {
    const at::NoGradGuard no_grad;
    model_->weight.fill_(3);
  }
  Trainer trainer(options());
  trainer.prepare_model(model_);
  const TransferCounts before = transfer_counts();
  const at::Tensor outputs = trainer.predict(model_, data);
  EXPECT_TRUE(outputs.device().is_cpu());
  EXPECT_FALSE(outputs.requires_grad());
  EXPECT_TRUE(same(outputs, at::arange(0, 15, 3, at::kFloat).unsqueeze(1)));
  EXPECT_EQ((transfer_counts() - before).device_to_host_copies, device_.is_cpu() ? 0 : 1);
}

TEST_P(Evaluate, LimitsCountBatches) {
  TensorData data = ramp(5, 5, 2);
  TrainerOptions limited = options();
  limited.limit_val_batches = limited.limit_test_batches = limited.limit_predict_batches = 1;
  Trainer trainer(limited);
  EXPECT_EQ(trainer.validate(model_, data).at("val_loss"), 1);
  EXPECT_EQ(trainer.test(model_, data).at("test_loss"), 1);
  EXPECT_EQ(trainer.predict(model_, data).size(0), 2);
}

TEST_P(Evaluate, ChangesNeitherWeightsNorBuffers) {
  NoiseImages data(10, 8, 5);
  const auto cnn = std::make_shared<SmallCnn>();
  Trainer trainer(options());
  const Metrics first = trainer.validate(cnn, data);
  EXPECT_EQ(trainer.validate(cnn, data), first);
  EXPECT_TRUE(same(cnn->named_buffers()["net.1.running_mean"], at::zeros({16})));
}

TEST_P(Evaluate, RestoresTheModeWhenAStepThrows) {
  class Thrower : public Slope {
   public:
    void validation_step(const Batch&) override { throw std::logic_error("enough"); }
  };
  TensorData data = ramp(2, 2, 2);
  const auto thrower = std::make_shared<Thrower>();
  EXPECT_THROW(Trainer(options()).validate(thrower, data), std::logic_error);
  EXPECT_TRUE(thrower->is_training());
  EXPECT_TRUE(at::GradMode::is_enabled());
}

// Two outputs; shuffled on purpose, which says which samples a batch holds.
class TwoOutputs : public Slope {
 public:
  Batch predict_outputs(const Batch& batch) override {
    return Batch::map({{"same", Batch::leaf(batch[0])}, {"twice", Batch::leaf(batch[0] * 2)}});
  }
};
class PredictsOnTraining : public TensorData {
 public:
  using TensorData::TensorData;
  std::shared_ptr<DataLoader> predict_dataloader() override { return train_dataloader(); }
};

TEST_P(Evaluate, PredictsBatchByBatchWithLabelsIndicesAndSeveralOutputs) {
  for (const bool shuffle : {false, true}) {
    const at::Tensor x = at::arange(7, at::kFloat).unsqueeze(1);
    PredictsOnTraining data({x, x * 3}, {}, {.batch_size = 3, .shuffle = shuffle});
    Trainer trainer({.num_gpus = num_gpus_wanted()});
    std::vector<std::int64_t> seen;
    trainer.predict(std::make_shared<TwoOutputs>(), data, [&](const Prediction& made) {
      EXPECT_EQ(made.batch[0].device(), device_);
      const at::Tensor expected = made.indices.to(at::kFloat).unsqueeze(1);
      EXPECT_TRUE(same(made.outputs["same"], expected));
      EXPECT_TRUE(same(made.outputs["twice"], expected * 2));
      EXPECT_TRUE(same(made.batch.labels().cpu(), expected * 3));
      for (std::int64_t i = 0; i < made.indices.size(0); ++i)
        seen.push_back(made.indices[i].item<std::int64_t>());
    });
    EXPECT_EQ(seen, (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6}));
  }
}

// Nothing would say whose row is whose.
TEST_P(Evaluate, PredictionsOfAShufflingLoaderComeInOrderToo) {
  const at::Tensor x = at::arange(7, at::kFloat).unsqueeze(1);
  PredictsOnTraining data({x, x * 3}, {}, {.batch_size = 3});
  const auto model = std::make_shared<Slope>();
  at::NoGradGuard no_grad;
  model->weight.fill_(2);
  EXPECT_TRUE(same(Trainer({.num_gpus = num_gpus_wanted()}).predict(model, data), x * 2));
}

TEST(EvaluateWithoutData, NeedsALoader) {
  TensorData data = ramp(2, 0, 2);
  const auto model = std::make_shared<Slope>();
  Trainer trainer;
  EXPECT_EQ(error_text<DataError>([&] { trainer.validate(model, data); }),
            "Trainer::validate: the data has no val_dataloader(); expected: a loader; override "
            "val_dataloader() of the data module");
  EXPECT_EQ(
      error_text<DataError>([&] { trainer.test(model, data); }),
      "Trainer::test: the data has no test_dataloader(), and no val_dataloader(), its default; expected: a "
      "loader; override test_dataloader() of the data module");
  EXPECT_EQ(error_text<DataError>([&] { trainer.predict(model, data); }),
            "Trainer::predict: the data has no predict_dataloader(), and no test_dataloader() or "
            "val_dataloader(), its defaults; expected: a loader; override predict_dataloader() of the data "
            "module");
}

}  // namespace
}  // namespace kindling
