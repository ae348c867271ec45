#include <ATen/core/Tensor.h>

#include <functional>
#include <thread>

#include "bindings/c_calls.h"
#include "kindling/cli/configured_training.h"
#include "kindling/training/trainer.h"
#include "support/scratch.h"

namespace kindling::test {
namespace {

constexpr const char* kConfig = R"(
seed = 7
[data]
name = "digits"
[model]
name = "mlp"
hidden = [32]
[trainer]
max_epochs = 3
limit_train_batches = 10
num_threads = 1
)";

kindling_trainer digits(std::vector<const char*> settings = {}) {
  kindling_trainer trainer = nullptr;
  expect_ok(kindling_trainer_from_text(kConfig, settings.data(), settings.size(), nullptr, &trainer));
  return trainer;
}

double metric(kindling_trainer trainer, const char* name) {
  double value = NAN;
  expect_ok(kindling_metric(trainer, name, &value));
  return value;
}

TEST(CFit, HasTheMetricsOfCpp) {
  Registry registry;
  register_builtin(registry);
  const ConfiguredTraining made = make_training(ConfigDocument::parse(kConfig, "config", "."), registry);
  Trainer twin(made.options);
  const FitResult expected = twin.fit(made.model, *made.data);

  const kindling_trainer trainer = digits();
  kindling_fit_result result{};
  expect_ok(kindling_fit(trainer, &result));
  EXPECT_EQ(result.status, KINDLING_FINISHED);
  EXPECT_EQ(result.epochs, 3);
  EXPECT_EQ(result.global_step, 30);
  EXPECT_EQ(result.diverged_step, -1);
  for (const char* name : {"train_loss", "val_loss", "val_acc"})
    EXPECT_EQ(metric(trainer, name), expected.metrics.at(name)) << name;
  expect_ok(kindling_validate(trainer));
  EXPECT_EQ(metric(trainer, "val_acc"), expected.metrics.at("val_acc"));

  kindling_tensor outputs = nullptr;
  expect_ok(kindling_predict(trainer, &outputs));
  kindling_array array{};
  expect_ok(kindling_tensor_array(outputs, &array));
  const at::Tensor predicted = twin.predict(made.model, *made.data);
  ASSERT_EQ(array.rank, 2);
  EXPECT_EQ(array.shape[0], predicted.size(0));
  EXPECT_EQ(static_cast<const float*>(array.data)[11], predicted.data_ptr<float>()[11]);
  expect_ok(kindling_trainer_free(trainer));  // the tensor lives on
  EXPECT_EQ(static_cast<const float*>(array.data)[11], predicted.data_ptr<float>()[11]);
  expect_ok(kindling_tensor_free(outputs));
}

TEST(CFit, ContinuesFromItsFolder) {
  const Scratch folder;
  const std::string checkpoints = (folder / std::string("checkpoints")).string();
  const kindling_trainer whole = digits(), first = digits({"trainer.max_epochs=1"}), second = digits();
  expect_ok(kindling_fit(whole, nullptr));
  for (const kindling_trainer part : {first, second}) {
    expect_ok(kindling_save_into(part, checkpoints.c_str()));
    expect_ok(kindling_fit(part, nullptr));
  }
  EXPECT_EQ(metric(second, "val_loss"), metric(whole, "val_loss"));
  kindling_progress progress{};
  expect_ok(kindling_get_progress(second, &progress));
  EXPECT_EQ(progress.global_step, 30);
  for (const kindling_trainer trainer : {whole, first, second}) expect_ok(kindling_trainer_free(trainer));
}

TEST(CFit, ContinuesFromAResumedState) {
  const Scratch folder;
  static std::string file;
  file = (folder / std::string("epoch1.safetensors")).string();
  const kindling_trainer first = digits(), second = digits();
  expect_ok(kindling_set_callback(
      first, KINDLING_ON_EPOCH_END,
      [](kindling_trainer trainer, int32_t, void*) {
        kindling_progress progress{};
        const kindling_status status = kindling_get_progress(trainer, &progress);
        return progress.epoch == 1 ? kindling_save(trainer, file.c_str()) : status;
      },
      nullptr));
  expect_ok(kindling_fit(first, nullptr));
  expect_ok(kindling_resume(second, file.c_str()));
  expect_ok(kindling_fit(second, nullptr));
  EXPECT_EQ(metric(second, "val_loss"), metric(first, "val_loss"));
  expect_ok(kindling_trainer_free(first));
  expect_ok(kindling_trainer_free(second));
}

// Images have a transform that also converts labels.
TEST(CFit, InfersImagesAlone) {
  const kindling_trainer trainer = digits({"trainer.max_epochs=1"});
  expect_ok(kindling_fit(trainer, nullptr));
  OwnArray<std::uint8_t> images(KINDLING_UINT8, {2, 1, 8, 8});
  OwnArray<float> outputs(KINDLING_FLOAT32, {2, 10});
  const kindling_array x = images.view(), y = outputs.view();
  expect_ok(kindling_infer(trainer, &x, 1, &y, 1));
  EXPECT_NE(outputs.numbers[0], outputs.numbers[1]);
  expect_ok(kindling_trainer_free(trainer));
}

struct Events {
  std::vector<int32_t> seen{};
  std::vector<double> losses{};
};

int32_t note(kindling_trainer trainer, int32_t event, void* user_data) {
  auto& events = *static_cast<Events*>(user_data);
  events.seen.push_back(event);
  if (event == KINDLING_ON_EPOCH_END) events.losses.push_back(metric(trainer, "train_loss"));
  return 0;
}

TEST(CFit, CallsTheProgramAtItsEvents) {
  const kindling_trainer trainer = digits({"trainer.max_epochs=2", "trainer.num_sanity_val_steps=0"});
  Events events;
  expect_ok(kindling_set_callback(
      trainer,
      KINDLING_ON_FIT_START | KINDLING_ON_VALIDATION_END | KINDLING_ON_EPOCH_END | KINDLING_ON_FIT_END, note,
      &events));
  expect_ok(kindling_fit(trainer, nullptr));
  EXPECT_EQ(events.seen,
            (std::vector<int32_t>{KINDLING_ON_FIT_START, KINDLING_ON_VALIDATION_END, KINDLING_ON_EPOCH_END,
                                  KINDLING_ON_VALIDATION_END, KINDLING_ON_EPOCH_END, KINDLING_ON_FIT_END}));
  ASSERT_EQ(events.losses.size(), 2U);
  EXPECT_LT(events.losses[1], events.losses[0]);
  expect_ok(kindling_trainer_free(trainer));
}

TEST(CFit, EndsWhenAnotherThreadStopsIt) {
  const kindling_trainer trainer = digits({"trainer.max_epochs=100000"});
  std::thread other;
  struct Start {
    std::thread* thread;
  } start{&other};
  expect_ok(kindling_set_callback(
      trainer, KINDLING_ON_FIT_START,
      [](kindling_trainer of, int32_t, void* user_data) {
        *static_cast<Start*>(user_data)->thread = std::thread([of] { expect_ok(kindling_request_stop(of)); });
        return 0;
      },
      &start));
  kindling_fit_result result{};
  expect_ok(kindling_fit(trainer, &result));
  other.join();
  EXPECT_EQ(result.status, KINDLING_STOPPED);
  expect_ok(kindling_trainer_free(trainer));
}

TEST(CFit, ACallbackThatFailsEndsTheFitWithItsNumber) {
  const kindling_trainer trainer = digits();
  expect_ok(kindling_set_callback(
      trainer, KINDLING_ON_BATCH_END, [](kindling_trainer, int32_t, void*) { return 17; }, nullptr));
  EXPECT_EQ(kindling_fit(trainer, nullptr), KINDLING_CALLBACK_ERROR);
  EXPECT_NE(std::string(kindling_error()).find("17"), std::string::npos) << kindling_error();
  expect_ok(kindling_set_callback(trainer, 0, nullptr, nullptr));
  expect_ok(kindling_fit(trainer, nullptr));  // the trainer can be used again
  expect_ok(kindling_trainer_free(trainer));
}

TEST(CFit, MessagesGoToTheFunctionOfTheProgram) {
  std::vector<std::string> messages;
  expect_ok(kindling_set_log(
      [](int32_t level, const char* message, void* user_data) {
        if (level == KINDLING_LOG_WARNING)
          static_cast<std::vector<std::string>*>(user_data)->push_back(message);
      },
      KINDLING_LOG_WARNING, &messages));
  const kindling_trainer trainer = digits({"trainer.num_gpus=64", "trainer.max_epochs=1"});
  expect_ok(kindling_fit(trainer, nullptr));
  expect_ok(kindling_set_log(nullptr, KINDLING_LOG_WARNING, nullptr));
  EXPECT_FALSE(messages.empty());
  expect_ok(kindling_trainer_free(trainer));
}

// Calls `run` with the group of each of two ranks, which are threads.
void with_two_ranks(const std::function<void(std::size_t rank, kindling_group)>& run) {
  char address[256];
  int32_t port = 0;
  expect_ok(kindling_free_address(address, sizeof(address), &port));
  std::vector<std::thread> ranks;
  for (std::size_t rank = 0; rank < 2; ++rank)
    ranks.emplace_back([&, rank] {
      kindling_group group = nullptr;
      expect_ok(kindling_group_join(static_cast<std::int64_t>(rank), 2, 0, "127.0.0.1", port, 60, &group));
      run(rank, group);
      expect_ok(kindling_group_free(group));
    });
  for (std::thread& rank : ranks) rank.join();
}

TEST(CFit, RanksOfAGroupFitTogether) {
  std::vector<double> losses{1, 2};
  with_two_ranks([&](std::size_t rank, kindling_group group) {
    kindling_trainer trainer = nullptr;
    const char* const settings[] = {"trainer.max_epochs=1"};
    expect_ok(kindling_trainer_from_text(kConfig, settings, 1, group, &trainer));
    expect_ok(kindling_fit(trainer, nullptr));
    losses[rank] = metric(trainer, "val_loss");
    expect_ok(kindling_trainer_free(trainer));
  });
  EXPECT_EQ(losses[0], losses[1]);
}

// One of them has no samples in the second step, and both have the same weights.
TEST(CFit, RanksOfAGroupTrainOneModel) {
  std::vector<double> outputs{1, 2};
  with_two_ranks([&](std::size_t rank, kindling_group group) {
    const kindling_trainer trainer = make_trainer(regressor_settings(), group);
    Samples<float> samples(KINDLING_FLOAT32);
    samples.fill(static_cast<int>(rank));
    expect_ok(samples.train(trainer));
    if (rank == 0) {
      expect_ok(samples.train(trainer));
    } else {
      const std::int64_t x_shape[] = {0, 3}, y_shape[] = {0, 1};
      const kindling_array x{nullptr, x_shape, nullptr, 2, KINDLING_FLOAT32, KINDLING_CPU, 0};
      const kindling_array y{nullptr, y_shape, nullptr, 2, KINDLING_FLOAT32, KINDLING_CPU, 0};
      expect_ok(kindling_train_step(trainer, &x, 1, &y, 1));
      EXPECT_TRUE(std::isnan(loss_of(trainer)));
    }
    samples.fill(5);
    const kindling_array x = samples.x.view();
    kindling_tensor output = nullptr;
    expect_ok(kindling_infer_tensor(trainer, &x, 1, &output));
    kindling_array array{};
    expect_ok(kindling_tensor_array(output, &array));
    if (array.data != nullptr) outputs[rank] = static_cast<double>(static_cast<const float*>(array.data)[3]);
    expect_ok(kindling_tensor_free(output));
    expect_ok(kindling_trainer_free(trainer));
  });
  EXPECT_EQ(outputs[0], outputs[1]);
}

}  // namespace
}  // namespace kindling::test
