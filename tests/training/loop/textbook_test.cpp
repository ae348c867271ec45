// The section on GPUs of Dive into Deep Learning, as its readers try it; docs/dev/d2l_traceability.md has the
// table.
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <sstream>

#include "kindling/base/error.h"
#include "kindling/device/transfer_counts.h"
#include "kindling/nn/lazy_linear.h"
#include "kindling/tensors/move.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

class TextbookTensors : public OnDevice {};
KINDLING_RUN_ON_DEVICES(TextbookTensors);

TEST_P(TextbookTensors, ReportAndPrintTheirDevice) {
  const at::Tensor x = torch::tensor({1.F, 2.F, 3.F});
  EXPECT_EQ(x.device(), cpu());
  const at::Tensor there = torch::ones({2, 3}, at::device(device_));
  EXPECT_EQ(there.device(), device_);
  std::ostringstream shown;
  shown << x.device() << ' ' << there.device();
  EXPECT_EQ(shown.str(), "cpu " + device_.str());
}

TEST_P(TextbookTensors, ANetMovesToTheGpuAndComputesThere) {
  const Device device = device_.is_cpu() ? cpu() : try_gpu(device_.index());
  EXPECT_EQ(device, device_);
  torch::nn::Sequential net{LazyLinear(1)};
  move_to(*net, device);  // before there is a parameter to move
  const at::Tensor x = torch::ones({2, 3}, at::device(device));
  const at::Tensor y = net->forward(x);
  EXPECT_EQ(y.sizes(), (at::IntArrayRef{2, 1}));
  EXPECT_EQ(y.device(), device_);
  ASSERT_EQ(net->parameters().size(), 2U);
  for (const at::Tensor& parameter : net->parameters()) EXPECT_EQ(parameter.device(), device_);
  EXPECT_TRUE(
      close(y[0], net->parameters()[0].sum(1) + net->parameters()[1], 1e-5));  // X is ones; three sums

  torch::nn::Sequential moved_late{LazyLinear(1)};
  moved_late->forward(torch::ones({2, 3}));
  move_to(*moved_late, device);
  EXPECT_EQ(moved_late->forward(x).device(), device_);
}

class TextbookTrainer : public OnDevice {
 protected:
  TrainerOptions options(std::int64_t max_epochs) const {
    return {.max_epochs = max_epochs, .num_gpus = num_gpus_wanted(), .optimizer = sgd(0.125)};
  }

  const std::shared_ptr<Slope> model_ = std::make_shared<Slope>();
};
KINDLING_RUN_ON_TRAINER_DEVICES(TextbookTrainer);

TEST_P(TextbookTrainer, UsesTheFirstAvailableGpus) {
  const Trainer trainer({3, num_gpus_wanted(), 0.5});
  EXPECT_EQ(trainer.gpus(), first_gpus(num_gpus_wanted()));
  EXPECT_EQ(trainer.gpus().size(), static_cast<std::size_t>(std::min(num_gpus_wanted(), num_gpus())));
  EXPECT_EQ(trainer.device(), device_);
}

TEST_P(TextbookTrainer, PrepareBatchMovesEveryTensorToTheDevice) {
  const Trainer trainer(options(1));
  const at::Tensor a = at::ones({2}), b = at::ones({2, 3}, at::kLong),
                   there = at::ones({2}, at::device(device_));
  const Batch batch = trainer.prepare_batch({a, there, b});
  for (const at::Tensor& tensor : batch.tensors()) EXPECT_EQ(tensor.device(), device_);
  EXPECT_TRUE(batch[1].is_same(there));
  EXPECT_TRUE(same(batch[2], b));
}

TEST_P(TextbookTrainer, PrepareModelSetsTrainerBoardAndDevice) {
  Trainer trainer(options(7));
  model_->board().draw(3, 1., "old");
  trainer.prepare_model(model_);
  EXPECT_TRUE(model_->trainer());
  EXPECT_EQ(model_->trainer().gpus(), trainer.gpus());
  EXPECT_EQ(model_->board().options().xlim, (std::array{0., 7.}));
  EXPECT_TRUE(model_->board().chart().curves.empty()) << "a new run, a new board";
  EXPECT_EQ(model_->weight.device(), device_);

  Trainer steps_only({.num_gpus = num_gpus_wanted(), .max_steps = 5});
  const auto other = std::make_shared<Slope>();
  steps_only.prepare_model(other);
  EXPECT_FALSE(other->board().options().xlim.has_value()) << "no epochs to span";
}

// Notes what the training batches of each epoch cost.
class LoopCounter : public Callback {
 public:
  void on_train_epoch_start(Trainer&, Module&) override { start_ = transfer_counts(); }
  void on_train_batch_end(Trainer&, Module&) override {
    const TransferCounts counts = transfer_counts() - start_;
    EXPECT_EQ(counts.device_to_host_copies, 0);
    EXPECT_EQ(counts.host_waits, 0);
    ++num_batches;
  }
  void on_epoch_end(Trainer&, Module&, const Record& record) override { records.push_back(record); }

  std::int64_t num_batches = 0;
  std::vector<Record> records;

 private:
  TransferCounts start_;
};

TEST_P(TextbookTrainer, LossesStayOnTheDeviceUntilTheEpochEnds) {
  const auto counter = std::make_shared<LoopCounter>();
  TensorData data = ramp(40, 0, 2);
  TrainerOptions counted = options(3);
  counted.callbacks = {counter};
  Trainer(counted).fit(model_, data);
  EXPECT_EQ(counter->num_batches, 3 * 20);
  ASSERT_EQ(counter->records.size(), 3U);
  // Two floats a batch, the loss, plotted and logged, and the guard's mark, in one copy.
  for (const Record& record : counter->records) {
    EXPECT_EQ(value_of(record, "device_to_host_copies"), device_.is_cpu() ? 0 : 1);
    EXPECT_EQ(value_of(record, "device_to_host_bytes"), device_.is_cpu() ? 0 : 2 * 20 * 4);
    EXPECT_EQ(value_of(record, "host_waits"), device_.is_cpu() ? 0 : 1);
  }
  EXPECT_FALSE(model_->board().chart().curves.at(0).y.empty());
}

TEST_P(TextbookTrainer, FitIsMadeOfItsParts) {
  TensorData data = ramp(7, 2, 2), same_data = ramp(7, 2, 2);
  Trainer whole(options(3)), parts(options(3));
  const FitResult result = whole.fit(model_, data);

  const auto model = std::make_shared<Slope>();
  parts.prepare_data(same_data);
  parts.prepare_model(model);
  EXPECT_EQ(parts.progress().num_train_batches, 4);
  Metrics metrics;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    EXPECT_EQ(parts.progress().epoch, epoch);
    metrics = parts.fit_epoch();
  }
  EXPECT_TRUE(same(model->weight, model_->weight));
  EXPECT_EQ(metrics.at("train_loss"), result.metrics.at("train_loss"));
  EXPECT_EQ(metrics.at("val_loss"), result.metrics.at("val_loss"));
  EXPECT_EQ(parts.progress().global_step, result.progress.global_step);
  EXPECT_EQ(model->board().chart().curves.at(0).y, model_->board().chart().curves.at(0).y);
}

TEST_P(TextbookTrainer, CustomStepsAndEpochsMayAlternate) {
  TensorData data = ramp(4, 0, 2);
  Trainer trainer(options(9));
  trainer.prepare_data(data);
  trainer.prepare_model(model_);
  trainer.fit_epoch();
  trainer.train_step(trainer.prepare_batch({at::ones({1, 1}), at::full({1, 1}, 2.F)}));
  // The weight after the gradients 0.5 and 2.5 is 3 / 8; the epoch before has left nothing in the log.
  EXPECT_DOUBLE_EQ(trainer.finish_epoch().at("train_loss"), 2 - 0.375);
  EXPECT_TRUE(trainer.fit_epoch().contains("epoch_time_s"));
  EXPECT_EQ(trainer.progress().epoch, 3);
  EXPECT_EQ(trainer.progress().global_step, 5);
}

TEST_P(TextbookTrainer, ClipGradientsScalesToTheNorm) {
  const Trainer trainer(options(1));
  model_->register_parameter("other", at::zeros({1}));
  model_->register_parameter("without_gradient", at::zeros({1}));
  move_to(*model_, device_);
  model_->weight.mutable_grad() = at::full({1}, 3., at::device(device_));
  model_->named_parameters()["other"].mutable_grad() = at::full({1}, 4., at::device(device_));
  const at::Tensor norm = trainer.clip_gradients(2.5, *model_);
  EXPECT_EQ(norm.device(), device_);
  EXPECT_TRUE(close(norm, at::scalar_tensor(5.F), 1e-6));
  EXPECT_TRUE(close(model_->weight.grad(), at::tensor({1.5F}),
                    1e-6));  // 1e-6: PyTorch adds this constant to the norm
  EXPECT_TRUE(close(model_->named_parameters()["other"].grad(), at::tensor({2.F}), 1e-6));
  EXPECT_FALSE(trainer.clip_gradients(1, *std::make_shared<Slope>()).defined());
}

TEST(TextbookTrainerErrors, AnEpochNeedsDataAndAModel) {
  Trainer trainer({.max_epochs = 1});
  EXPECT_EQ(error_text<Error>([&] { trainer.fit_epoch(); }),
            "Trainer::fit_epoch: no data has been prepared; call prepare_data(data) first");
  TensorData data = ramp(2, 0, 2);
  trainer.prepare_data(data);
  EXPECT_EQ(error_text<Error>([&] { trainer.fit_epoch(); }),
            "Trainer::fit_epoch: no model has been prepared; call prepare_model(model) first");
  trainer.fit(std::make_shared<Slope>(), data);
  EXPECT_THROW(trainer.fit_epoch(), Error) << "fit gives the data back";
}

}  // namespace
}  // namespace kindling
