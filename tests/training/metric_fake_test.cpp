// What metrics and previews cost on a card, as the card has seen it.
#include <gtest/gtest.h>

#include <chrono>

#include "fake_accelerator.h"
#include "training/confusion.h"

namespace kindling {
namespace {

TEST(FakeMetrics, EpochIsOneCopyToTheHost) {
  class Copies : public Callback {
   public:
    void on_train_epoch_start(Trainer&, Module&) override { fake::reset_counts(); }
    void on_epoch_end(Trainer&, Module&, const Record&) override {
      of_epochs.push_back(fake::counts().device_to_host_copies);
      waits.push_back(fake::counts().host_waits());
    }
    std::vector<std::int64_t> of_epochs, waits;
  };
  for (const bool with_validation : {false, true}) {
    const auto copies = std::make_shared<Copies>();
    TensorData data = eleven_answers(with_validation);
    Trainer({.max_epochs = 2, .num_gpus = 1, .callbacks = {copies}}).fit(std::make_shared<Echo>(), data);
    const std::int64_t expected = with_validation ? 2 : 1;
    EXPECT_EQ(copies->of_epochs, (std::vector<std::int64_t>{expected, expected}));
    EXPECT_EQ(copies->waits, (std::vector<std::int64_t>{expected, expected}));
  }
}

TEST(FakePreview, CopiesAtMostOnceASecond) {
  Trainer trainer({.max_epochs = 1, .num_gpus = 1, .optimizer = sgd(0.125)});
  trainer.prepare_model(std::make_shared<Slope>());
  const Batch batch = trainer.prepare_batch(Batch{at::ones({2, 1}), at::ones({2, 1})});
  trainer.train_step(batch);
  fake::reset_counts();
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(trainer.preview(), (NamedValues{{"train_loss", 1}}));
  trainer.train_step(batch);
  const NamedValues second = trainer.preview();
  if (std::chrono::steady_clock::now() - start < std::chrono::seconds(1)) {
    EXPECT_EQ(second, (NamedValues{{"train_loss", 1}})) << "of the first step";
    EXPECT_EQ(fake::counts().device_to_host_copies, 1);
  }
  EXPECT_EQ(fake::counts().host_waits(), 0);
}

TEST(FakePreview, NewTrainingShowsNothingOfTheOneBefore) {
  Trainer trainer({.max_epochs = 1, .num_gpus = 1});
  trainer.prepare_model(std::make_shared<Slope>());
  trainer.train_step(trainer.prepare_batch(Batch{at::ones({2, 1}), at::ones({2, 1})}));
  trainer.finish_epoch();
  EXPECT_FALSE(trainer.preview().empty());
  trainer.prepare_model(std::make_shared<Slope>());
  EXPECT_TRUE(trainer.preview().empty());
}

}  // namespace
}  // namespace kindling
