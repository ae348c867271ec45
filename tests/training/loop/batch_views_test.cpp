// Batches in data-set order are views of the caller's tensors: what hooks and steps write must not get there.
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "kindling/base/error.h"
#include "support/scratch.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

enum class Writes { none, in_place, by_pointer, late };

// Five batches of two samples; its hook halves the inputs, in different ways.
class Halving : public TensorData {
 public:
  explicit Halving(Writes writes, std::vector<at::Tensor> tensors = {at::arange(10, at::kFloat).unsqueeze(1),
                                                                     at::zeros({10, 1})})
      : TensorData(tensors, tensors, {.batch_size = 2, .shuffle = false}),
        inputs(tensors[0]),
        writes_(writes) {}

  Batch on_after_batch_transfer(Batch batch, Stage) override {
    const at::Tensor x = batch[0];
    addresses.push_back(x.const_data_ptr());
    ++num_batches;
    if (writes_ == Writes::in_place || (writes_ == Writes::late && num_batches == 3)) x.div_(2);
    if (writes_ == Writes::by_pointer)
      for (std::int64_t i = 0; i < x.numel(); ++i) x.mutable_data_ptr<float>()[i] /= 2;
    if (writes_ == Writes::none || (writes_ == Writes::late && num_batches != 3))
      return {x.div(2), batch.labels()};
    return batch;
  }

  at::Tensor inputs;
  std::vector<const void*> addresses;
  int num_batches = 0;

 private:
  Writes writes_;
};

TrainerOptions five_epochs() {
  return {.max_epochs = 5, .num_sanity_val_steps = 0, .optimizer = sgd(0), .loggers = {}};
}

std::shared_ptr<Slope> slope_of_one() {
  auto model = std::make_shared<Slope>();
  const at::NoGradGuard no_grad;
  model->weight.fill_(1);
  return model;
}

// The mean of 0, 0.5, …, 4.5.
constexpr double kHalfMean = 2.25;

TEST(BatchViews, AreNotWrittenToByHooks) {
  for (const Writes writes : {Writes::none, Writes::in_place, Writes::by_pointer})
    for (const char* step_graph : {"off", "auto"}) {
      Halving data(writes);
      const auto logger = std::make_shared<MemoryLogger>();
      TrainerOptions options = five_epochs();
      options.loggers = {logger};
      options.step_graph = step_graph;
      Trainer trainer(options);
      trainer.fit(slope_of_one(), data);
      ASSERT_EQ(logger->records().size(), 5U);
      for (const Record& record : logger->records()) {
        EXPECT_EQ(value_of(record, "train_loss"), kHalfMean);
        EXPECT_EQ(value_of(record, "val_loss"), kHalfMean);
      }
      const auto model = slope_of_one();
      EXPECT_EQ(trainer.validate(model, data).at("val_loss"), kHalfMean);
      EXPECT_EQ(trainer.test(model, data).at("test_loss"), kHalfMean);
      EXPECT_TRUE(trainer.predict(model, data).equal(at::arange(10, at::kFloat).unsqueeze(1) / 2));
      EXPECT_TRUE(data.inputs.equal(at::arange(10, at::kFloat).unsqueeze(1)));
    }
}

TEST(BatchViews, AreNotWrittenToByModels) {
  class InPlace : public Slope {
   public:
    at::Tensor forward(const at::Tensor& x) override { return x.sub_(1).relu_() * weight; }
  };
  TensorData data({at::ones({6, 1}) * 3, at::zeros({6, 1})}, {at::ones({6, 1}) * 3, at::zeros({6, 1})},
                  {.batch_size = 2, .shuffle = false});
  const auto model = std::make_shared<InPlace>();
  {
    const at::NoGradGuard no_grad;
    model->weight.fill_(1);
  }
  const auto logger = std::make_shared<MemoryLogger>();
  TrainerOptions options = five_epochs();
  options.loggers = {logger};
  Trainer(options).fit(model, data);
  for (const Record& record : logger->records()) {
    EXPECT_EQ(value_of(record, "train_loss"), 2);
    EXPECT_EQ(value_of(record, "val_loss"), 2);
  }
  const DataLoader& loader = *data.train_dataloader();
  EXPECT_TRUE(loader.dataset().slice(0, 6)[0].equal(at::ones({6, 1}) * 3));
}

TEST(BatchViews, ReportALaterWriteInItsStep) {
  Halving data(Writes::late);
  const auto model = slope_of_one();
  const std::string text = error_text<DataError>([&] { Trainer(five_epochs()).fit(model, data); });
  EXPECT_EQ(
      text,
      "batch 3 of an epoch in data-set order: an operator has written to its tensors, which are views of "
      "the data set: its samples have changed, for all later epochs; expected: operators that return new "
      "tensors, such as x.div(255) instead of x.div_(255); clone() what is to be written to, in "
      "on_after_batch_transfer() and in the model's steps (a ReLU with inplace as the first layer writes "
      "to its input, too)");
  EXPECT_EQ(data.num_batches, 3);
  Halving of_validation(Writes::late);
  EXPECT_THROW(Trainer(five_epochs()).validate(model, of_validation), DataError);
  EXPECT_EQ(of_validation.num_batches, 3);
}

TEST(BatchViews, ReportAWriteOfALoop) {
  const at::Tensor numbers = at::zeros({4, 1});
  DataLoader loader(std::make_shared<TensorDataset>(std::vector{numbers}),
                    {.batch_size = 2, .shuffle = false});
  int num_batches = 0;
  EXPECT_THROW(
      for (const Batch& batch
           : loader) {
        ++num_batches;
        batch[0].add_(1);
      },
      DataError);
  EXPECT_EQ(num_batches, 1);
  for (const Batch& batch : loader) batch[0].add(1);
}

// Only the first batch of a loop is copied.
TEST(BatchViews, AreNotCopiedIfNothingWrites) {
  Halving data(Writes::none);
  TrainerOptions options = five_epochs();
  options.max_epochs = 1;
  options.limit_val_batches = 1;
  Trainer(options).fit(slope_of_one(), data);
  ASSERT_EQ(data.addresses.size(), 6U);
  const auto* const inputs = data.inputs.const_data_ptr<float>();
  EXPECT_NE(data.addresses[0], inputs);
  for (std::size_t i = 1; i < 5; ++i) EXPECT_EQ(data.addresses[i], inputs + 2 * i);
}

// Writes to such tensors are not counted.
TEST(BatchViews, AreCopiesOfTensorsFromInferenceMode) {
  at::Tensor x, y;
  {
    const c10::InferenceMode inference;
    x = at::ones({10, 1});
    y = at::zeros({10, 1});
  }
  Halving data(Writes::none, {x, y});
  TrainerOptions options = five_epochs();
  options.max_epochs = 1;
  Trainer(options).fit(slope_of_one(), data);
  for (const void* address : data.addresses) {
    EXPECT_TRUE(address < x.const_data_ptr<float>() || address >= x.const_data_ptr<float>() + 10);
  }
}

}  // namespace
}  // namespace kindling
