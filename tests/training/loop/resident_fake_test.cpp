// Fits whose samples stay on the device.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "fake_accelerator.h"
#include "kindling/base/error.h"
#include "kindling/models/mlp.h"
#include "kindling/optim/adam.h"
#include "kindling/tensors/state_dict.h"
#include "support/tensor_matchers.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

constexpr std::int64_t kSamples = 38;  // batches of 8: four, and a short one
constexpr std::int64_t kOrderBytes = 8 * kSamples;

struct FitOfSamples {
  std::vector<Record> records;
  StateDict weights;
  fake::Counts counts;
};

TrainerOptions three_epochs() {
  return {.max_epochs = 3, .num_gpus = 1, .num_sanity_val_steps = 0, .optimizer = [](auto parameters) {
            return std::make_unique<AdamW>(std::move(parameters));
          }};
}

FitOfSamples fit_of_samples(const std::string& resident, TrainerOptions options = three_epochs()) {
  at::manual_seed(3);
  const auto logger = std::make_shared<MemoryLogger>();
  options.loggers = {logger};
  const auto model = std::make_shared<Mlp>(MlpOptions{.hidden = {16}});
  NoiseImages data(kSamples, 10, 8, resident);
  Trainer trainer(options);
  trainer.layer_summary(model, data);  // lazy layers are made and moved
  fake::reset_counts();
  trainer.fit(model, data);
  return {logger->records(), state_dict(*model), fake::counts()};
}

void expect_same_numbers(const FitOfSamples& one, const FitOfSamples& other) {
  ASSERT_EQ(one.records.size(), other.records.size());
  for (std::size_t i = 0; i < one.records.size(); ++i)
    EXPECT_EQ(numbers_of(one.records[i]), numbers_of(other.records[i]));
  ASSERT_EQ(one.weights.tensors.size(), other.weights.tensors.size());
  for (std::size_t i = 0; i < one.weights.tensors.size(); ++i)
    EXPECT_TRUE(same(one.weights.tensors[i].second, other.weights.tensors[i].second));
}

TEST(FakeResidentFit, SendsOnlyTheOrderOfAnEpoch) {
  const fake::LateCopies late;
  const FitOfSamples stays = fit_of_samples("auto"), travels = fit_of_samples("off");
  expect_same_numbers(stays, travels);
  ASSERT_EQ(stays.records.size(), 3U);
  for (std::size_t epoch = 0; epoch < 3; ++epoch) {
    const Record &here = stays.records[epoch], &there = travels.records[epoch];
    // The validation has one order for all epochs.
    const double orders = epoch == 0 ? 2 : 1;
    EXPECT_EQ(value_of(here, "host_to_device_copies"), orders);
    EXPECT_EQ(value_of(here, "host_to_device_bytes"), orders * kOrderBytes);
    EXPECT_EQ(value_of(there, "host_to_device_copies"), 2 * 2 * 5);
    EXPECT_EQ(value_of(there, "host_to_device_bytes"), 2 * kSamples * 101);
    for (const char* same_count : {"host_waits", "device_to_host_copies", "device_to_host_bytes"})
      EXPECT_EQ(value_of(here, same_count), value_of(there, same_count)) << same_count;
  }
  // All of it: two sets of two tensors, once.
  EXPECT_EQ(stays.counts.host_to_device_copies, 4 + 4);
  EXPECT_EQ(stays.counts.host_to_device_bytes, 2 * kSamples * 101 + 4 * kOrderBytes);
  EXPECT_EQ(stays.counts.host_waits(), travels.counts.host_waits());
}

TEST(FakeResidentFit, ReleasesTheMemory) {
  // Additional live memory while the trainer exists, and the peak.
  const auto bytes_of_fit = [](const std::string& resident) {
    NoiseImages data(kSamples, 10, 8, resident);
    const auto model = std::make_shared<Mlp>(MlpOptions{.hidden = {4}});
    Trainer trainer(three_epochs());
    trainer.layer_summary(model, data);
    fake::reset_counts();
    const std::int64_t before = fake::counts().live_bytes[0];
    trainer.fit(model, data);
    return std::pair{fake::counts().live_bytes[0] - before, fake::counts().peak_bytes[0] - before};
  };
  const auto [left_on, most_on] = bytes_of_fit("on");
  const auto [left_off, most_off] = bytes_of_fit("off");
  EXPECT_EQ(left_on, left_off);
  EXPECT_GE(most_on, 2 * kSamples * 101);
}

TEST(FakeResidentFit, TransfersAFewBatchesUnlessOn) {
  const auto copies = [](const std::string& resident, const auto& limit) {
    TrainerOptions options = three_epochs();
    limit(options);
    return fit_of_samples(resident, options).counts.host_to_device_copies;
  };
  const auto limited = [](TrainerOptions& o) { o.limit_train_batches = o.limit_val_batches = 2; };
  EXPECT_EQ(copies("auto", limited), 3 * 2 * (2 + 2));
  EXPECT_EQ(copies("on", limited), 4 + 4);
  const auto dev = [](TrainerOptions& o) { o.fast_dev_run = true; };
  EXPECT_EQ(copies("auto", dev), 2 + 2);
  const auto by_heart = [](TrainerOptions& o) { o.overfit_batches = CountOrFraction(std::int64_t{2}); };
  EXPECT_EQ(copies("auto", by_heart), 3 * 2 * (2 + 2));
  expect_same_numbers(fit_of_samples("on",
                                     [&] {
                                       TrainerOptions options = three_epochs();
                                       by_heart(options);
                                       return options;
                                     }()),
                      fit_of_samples("off", [&] {
                        TrainerOptions options = three_epochs();
                        by_heart(options);
                        return options;
                      }()));
}

TEST(FakeResidentFit, WorksInCustomLoops) {
  const FitOfSamples whole = fit_of_samples("off");
  at::manual_seed(3);
  const auto logger = std::make_shared<MemoryLogger>();
  TrainerOptions options = three_epochs();
  options.loggers = {logger};
  const auto model = std::make_shared<Mlp>(MlpOptions{.hidden = {16}});
  NoiseImages data(kSamples, 10, 8, "on");
  Trainer trainer(options);
  trainer.layer_summary(model, data);
  trainer.prepare_data(data);
  trainer.prepare_model(model);
  while (!trainer.is_done()) {
    for (const Batch& batch : trainer.train_batches()) {
      EXPECT_FALSE(batch[0].is_cpu());
      trainer.train_step(batch);
    }
    trainer.finish_epoch();
  }
  expect_same_numbers({logger->records(), state_dict(*model), {}}, whole);
  EXPECT_EQ(value_of(logger->records().back(), "host_to_device_bytes"), kOrderBytes);
}

// Changes the samples between epochs.
class Changes : public Callback {
 public:
  explicit Changes(at::Tensor samples) : samples_(std::move(samples)) {}
  void on_epoch_end(Trainer&, Module&, const Record&) override { samples_.mul_(0.5); }

 private:
  at::Tensor samples_;
};

TEST(FakeResidentFit, SeesSamplesThatChange) {
  const auto records = [](const std::string& resident) {
    const auto logger = std::make_shared<MemoryLogger>();
    const at::Tensor x = at::arange(20, at::kFloat).unsqueeze(1);
    TensorData data({x, 2 * x}, {}, {.batch_size = 4, .resident = resident});
    Trainer({.max_epochs = 3,
             .num_gpus = 1,
             .optimizer = sgd(1e-3),
             .callbacks = {std::make_shared<Changes>(x)},
             .loggers = {logger}})
        .fit(std::make_shared<Slope>(), data);
    return logger->records();
  };
  const auto resident = records("on"), travelling = records("off");
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(numbers_of(resident[i]), numbers_of(travelling[i]));
  EXPECT_EQ(value_of(resident[0], "host_to_device_copies"), 1);
  EXPECT_EQ(value_of(resident[1], "host_to_device_copies"), 2 * 5);
}

TEST(FakeResidentFit, OnIsRefusedBeforeTheFit) {
  const fake::FreeBytes free(1000);
  NoiseImages data(kSamples, 10, 8, "on");
  const auto model = std::make_shared<Mlp>(MlpOptions{.hidden = {4}});
  EXPECT_THROW(Trainer(three_epochs()).fit(model, data), DataError);
  NoiseImages as_it_fits(kSamples, 10, 8, "auto");
  EXPECT_EQ(Trainer(three_epochs()).fit(model, as_it_fits).status, FitStatus::finished);
}

}  // namespace
}  // namespace kindling
