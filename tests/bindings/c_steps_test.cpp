#include <ATen/ops/from_blob.h>

#include <bit>
#include <filesystem>

#include "bindings/c_calls.h"
#include "kindling/cli/configured_training.h"
#include "kindling/training/trainer.h"
#include "support/scratch.h"

namespace kindling::test {
namespace {

ConfiguredTraining made_in_cpp(const std::vector<std::string>& settings) {
  Registry registry;
  register_builtin(registry);
  ConfigDocument document;
  for (const std::string& setting : settings) document.set(setting);
  return make_training(std::move(document), registry);
}

// The losses of the same steps in C++.
template <class Number>
std::vector<double> losses_in_cpp(const std::vector<std::string>& settings, int32_t dtype, int num_steps) {
  const ConfiguredTraining made = made_in_cpp(settings);
  Trainer trainer(made.options);
  trainer.prepare_model(made.model);
  Samples<Number> samples(dtype);
  std::vector<double> losses;
  const auto type = dtype == KINDLING_FLOAT32 ? at::kFloat : at::kDouble;
  for (int step = 0; step < num_steps; ++step) {
    samples.fill(step);
    const at::Tensor x = at::from_blob(samples.x.numbers.data(), {32, 3}, type);
    const at::Tensor y = at::from_blob(samples.y.numbers.data(), {32, 1}, type);
    trainer.train_step(trainer.prepare_batch({x, y}));
    losses.push_back(trainer.loss_value());
  }
  return losses;
}

template <class Number>
std::vector<double> losses_in_c(kindling_trainer trainer, int32_t dtype, int from, int to) {
  Samples<Number> samples(dtype);
  std::vector<double> losses;
  for (int step = from; step < to; ++step) {
    samples.fill(step);
    expect_ok(samples.train(trainer));
    losses.push_back(loss_of(trainer));
  }
  return losses;
}

TEST(CSteps, HaveTheLossesOfCpp) {
  const kindling_trainer trainer = make_trainer();
  EXPECT_EQ(losses_in_c<float>(trainer, KINDLING_FLOAT32, 0, 30),
            losses_in_cpp<float>(regressor_settings(), KINDLING_FLOAT32, 30));
  expect_ok(kindling_trainer_free(trainer));
}

TEST(CSteps, HaveTheLossesOfCppInDoublePrecision) {
  auto settings = regressor_settings();
  settings.emplace_back("trainer.precision=\"64-true\"");
  const kindling_trainer trainer = make_trainer(settings);
  const auto losses = losses_in_c<double>(trainer, KINDLING_FLOAT64, 0, 30);
  EXPECT_EQ(losses, losses_in_cpp<double>(settings, KINDLING_FLOAT64, 30));
  EXPECT_LT(losses.back(), losses.front());
  expect_ok(kindling_trainer_free(trainer));
}

// A second trainer in the place of a process that was killed.
TEST(CSteps, AResumedRunIsBitIdentical) {
  const Scratch folder;
  const std::string file = (folder / std::string("restart.safetensors")).string();
  const kindling_trainer first = make_trainer();
  losses_in_c<float>(first, KINDLING_FLOAT32, 0, 7);
  expect_ok(kindling_save(first, file.c_str()));
  const auto losses = losses_in_c<float>(first, KINDLING_FLOAT32, 7, 20);
  expect_ok(kindling_trainer_free(first));

  const kindling_trainer second = make_trainer();
  losses_in_c<float>(second, KINDLING_FLOAT32, 0, 3);  // other weights than those that are loaded
  expect_ok(kindling_resume(second, file.c_str()));
  kindling_progress progress{};
  expect_ok(kindling_get_progress(second, &progress));
  EXPECT_EQ(progress.global_step, 7);
  EXPECT_EQ(losses_in_c<float>(second, KINDLING_FLOAT32, 7, 20), losses);
  expect_ok(kindling_trainer_free(second));
}

// The rows of the mask alone, as a batch of their own.
TEST(CSteps, AMaskLeavesOutSamples) {
  Samples<float> samples(KINDLING_FLOAT32);
  OwnArray<std::uint8_t> mask(KINDLING_BOOL, {32});
  for (std::size_t i = 0; i < 10; ++i) mask.numbers[3 * i] = 1;
  const kindling_array x = samples.x.view(), y = samples.y.view(), m = mask.view();
  const kindling_trainer masked = make_trainer(), selected = make_trainer();
  expect_ok(kindling_train_step_masked(masked, &x, 1, &y, 1, &m));

  OwnArray<float> few_x(KINDLING_FLOAT32, {10, 3}), few_y(KINDLING_FLOAT32, {10, 1});
  for (std::size_t i = 0; i < 10; ++i) {
    for (std::size_t j = 0; j < 3; ++j) few_x.numbers[3 * i + j] = samples.x.numbers[9 * i + j];
    few_y.numbers[i] = samples.y.numbers[3 * i];
  }
  const kindling_array a = few_x.view(), b = few_y.view();
  expect_ok(kindling_train_step(selected, &a, 1, &b, 1));
  EXPECT_EQ(loss_of(masked), loss_of(selected));
  expect_ok(kindling_trainer_free(masked));
  expect_ok(kindling_trainer_free(selected));
}

// a(3, 32) of Fortran is [32, 3] in the opposite order; each read backwards needs a copy.
TEST(CSteps, StridesAreThoseOfTheCaller) {
  Samples<float> samples(KINDLING_FLOAT32);
  const kindling_trainer plain = make_trainer(), strided = make_trainer();
  expect_ok(samples.train(plain));

  std::vector<float> columns(96), reversed(64);  // column-major; every second element, from the end
  for (std::size_t i = 0; i < 32; ++i) {
    for (std::size_t j = 0; j < 3; ++j) columns[i + 32 * j] = samples.x.numbers[3 * i + j];
    reversed[62 - 2 * i] = samples.y.numbers[i];
  }
  const std::int64_t x_shape[] = {32, 3}, x_strides[] = {1, 32}, y_shape[] = {32, 1}, y_strides[] = {-2, 7};
  const kindling_array x{columns.data(), x_shape, x_strides, 2, KINDLING_FLOAT32, KINDLING_CPU, 0};
  const kindling_array y{&reversed[62], y_shape, y_strides, 2, KINDLING_FLOAT32, KINDLING_CPU, 0};
  kindling_array_counts before{}, after{};
  expect_ok(kindling_count_arrays(&before));
  expect_ok(kindling_train_step(strided, &x, 1, &y, 1));
  expect_ok(kindling_count_arrays(&after));
  EXPECT_EQ(loss_of(plain), loss_of(strided));
  EXPECT_EQ(after.borrowed - before.borrowed, 1);
  EXPECT_EQ(after.copied_for_strides - before.copied_for_strides, 1);
  EXPECT_EQ(after.copied_for_dtype - before.copied_for_dtype, 0);
  expect_ok(kindling_trainer_free(plain));
  expect_ok(kindling_trainer_free(strided));
}

TEST(CSteps, DoublesOfTheCallerBecomeTheTypeOfTheModel) {
  Samples<double> doubles(KINDLING_FLOAT64);
  Samples<float> floats(KINDLING_FLOAT32);
  const kindling_trainer a = make_trainer(), b = make_trainer();
  kindling_array_counts before{}, after{};
  expect_ok(kindling_count_arrays(&before));
  expect_ok(doubles.train(a));
  expect_ok(kindling_count_arrays(&after));
  for (std::size_t i = 0; i < floats.y.numbers.size(); ++i)
    floats.y.numbers[i] = static_cast<float>(doubles.y.numbers[i]);
  expect_ok(floats.train(b));
  EXPECT_EQ(loss_of(a), loss_of(b));
  EXPECT_EQ(after.copied_for_dtype - before.copied_for_dtype, 2);
  expect_ok(kindling_trainer_free(a));
  expect_ok(kindling_trainer_free(b));
}

TEST(CSteps, InferWritesIntoArraysOfTheCaller) {
  Samples<float> samples(KINDLING_FLOAT32);
  const kindling_trainer trainer = make_trainer();
  for (int step = 0; step < 300; ++step) expect_ok(samples.train(trainer));
  const double loss = loss_of(trainer);
  std::vector<double> out(64, -1);  // every second element
  const std::int64_t shape[] = {32, 1}, strides[] = {2, 1};
  const kindling_array x = samples.x.view();
  const kindling_array y{out.data(), shape, strides, 2, KINDLING_FLOAT64, KINDLING_CPU, 0};
  expect_ok(kindling_infer(trainer, &x, 1, &y, 1));
  double error = 0;
  for (std::size_t i = 0; i < 32; ++i) {
    error += std::pow(out[2 * i] - static_cast<double>(samples.y.numbers[i]), 2) / 32;
    EXPECT_EQ(out[2 * i + 1], -1);
  }
  EXPECT_NEAR(error, loss, 0.2 * loss);  // of the step before the latest update

  kindling_tensor output = nullptr;
  expect_ok(kindling_infer_tensor(trainer, &x, 1, &output));
  kindling_array described{};
  expect_ok(kindling_tensor_array(output, &described));
  ASSERT_EQ(described.rank, 2);
  EXPECT_EQ(described.shape[0], 32);
  EXPECT_EQ(static_cast<double>(static_cast<const float*>(described.data)[5]), out[10]);
  expect_ok(kindling_tensor_free(output));
  expect_ok(kindling_trainer_free(trainer));
}

TEST(CSteps, ALossThatIsNotFiniteIsAValue) {
  auto settings = regressor_settings();
  settings.emplace_back("trainer.on_nonfinite=\"skip\"");
  const kindling_trainer trainer = make_trainer(settings);
  Samples<float> samples(KINDLING_FLOAT32);
  expect_ok(samples.train(trainer));
  const float kept = samples.y.numbers[0];
  samples.y.numbers[0] = NAN;
  expect_ok(samples.train(trainer));
  EXPECT_TRUE(std::isnan(loss_of(trainer)));
  samples.y.numbers[0] = kept;
  expect_ok(samples.train(trainer));
  EXPECT_TRUE(std::isfinite(loss_of(trainer)));
  expect_ok(kindling_trainer_free(trainer));
}

TEST(CSteps, AnEpochHasMetricsAndItsLatestLossStays) {
  const kindling_trainer trainer = make_trainer();
  Samples<float> samples(KINDLING_FLOAT32);
  double sum = 0;
  for (int step = 0; step < 4; ++step) {
    expect_ok(kindling_log_value(trainer, "time_step", step));
    expect_ok(samples.train(trainer));
    sum += loss_of(trainer);
  }
  const double latest = loss_of(trainer);
  expect_ok(kindling_finish_epoch(trainer));
  double mean = 0, time_step = 0;
  expect_ok(kindling_metric(trainer, "train_loss", &mean));
  expect_ok(kindling_metric(trainer, "time_step", &time_step));
  EXPECT_NEAR(mean, sum / 4, 1e-7);
  EXPECT_EQ(time_step, 1.5);
  EXPECT_EQ(loss_of(trainer), latest);
  std::size_t count = 0;
  expect_ok(kindling_metric_count(trainer, &count));
  const char* name = nullptr;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < count; ++i) {
    expect_ok(kindling_metric_name(trainer, i, &name));
    names.emplace_back(name);
  }
  EXPECT_NE(std::ranges::find(names, "train_loss"), names.end());
  expect_ok(kindling_trainer_free(trainer));
}

// A Fortran program's first mistake: a(3, 32) instead of its transpose. The second call is right.
TEST(CSteps, AFirstStepThatFailsLeavesNoTrace) {
  const kindling_trainer wrong = make_trainer(), right = make_trainer();
  Samples<float> samples(KINDLING_FLOAT32);
  OwnArray<float> turned(KINDLING_FLOAT32, {3, 32});
  const kindling_array x = samples.x.view(), y = samples.y.view(), t = turned.view();
  OwnArray<float> three(KINDLING_FLOAT32, {3, 2});
  const kindling_array bad_target = three.view();
  EXPECT_NE(kindling_train_step(wrong, &t, 1, &bad_target, 1), KINDLING_OK);
  expect_ok(kindling_train_step(wrong, &x, 1, &y, 1));
  expect_ok(kindling_train_step(right, &x, 1, &y, 1));
  EXPECT_EQ(loss_of(wrong), loss_of(right));
  expect_ok(kindling_trainer_free(wrong));
  expect_ok(kindling_trainer_free(right));
}

// With dropout, each draws random numbers in every step.
TEST(CSteps, TrainersDoNotShareRandomNumbers) {
  const std::vector<std::string> settings{"model.name=\"mlp_regressor\"", "model.hidden=[16]",
                                          "model.dropout=0.5", "trainer.num_threads=1"};
  const kindling_trainer alone = make_trainer(settings);
  const auto expected = losses_in_c<float>(alone, KINDLING_FLOAT32, 0, 6);
  const kindling_trainer a = make_trainer(settings), b = make_trainer(settings);
  std::vector<double> of_a, of_b;
  for (int step = 0; step < 6; ++step) {
    of_a.push_back(losses_in_c<float>(a, KINDLING_FLOAT32, step, step + 1).front());
    if (step == 3) expect_ok(kindling_trainer_free(make_trainer(settings)));
    of_b.push_back(losses_in_c<float>(b, KINDLING_FLOAT32, step, step + 1).front());
  }
  EXPECT_EQ(of_a, expected);
  EXPECT_EQ(of_b, expected);
  for (const kindling_trainer trainer : {alone, a, b}) expect_ok(kindling_trainer_free(trainer));
}

TEST(CSteps, AFailedResumeChangesNothing) {
  const Scratch folder;
  const std::string other = (folder / std::string("other.safetensors")).string();
  auto settings = regressor_settings();
  settings[1] = "model.hidden=[7]";
  const kindling_trainer small = make_trainer(settings), trainer = make_trainer(), twin = make_trainer();
  losses_in_c<float>(small, KINDLING_FLOAT32, 0, 3);
  expect_ok(kindling_save(small, other.c_str()));
  losses_in_c<float>(trainer, KINDLING_FLOAT32, 0, 5);
  losses_in_c<float>(twin, KINDLING_FLOAT32, 0, 5);
  EXPECT_EQ(kindling_resume(trainer, other.c_str()), KINDLING_CHECKPOINT_ERROR);
  EXPECT_EQ(losses_in_c<float>(trainer, KINDLING_FLOAT32, 5, 10),
            losses_in_c<float>(twin, KINDLING_FLOAT32, 5, 10));
  kindling_progress progress{};
  expect_ok(kindling_get_progress(trainer, &progress));
  EXPECT_EQ(progress.global_step, 10);
  for (const kindling_trainer one : {small, trainer, twin}) expect_ok(kindling_trainer_free(one));
}

TEST(CSteps, ALoopCanAskWhetherItIsDone) {
  auto settings = regressor_settings();
  settings.emplace_back("trainer.max_steps=5");
  const kindling_trainer trainer = make_trainer(settings), diverging = make_trainer();
  Samples<float> samples(KINDLING_FLOAT32);
  int32_t is_done = 0;
  int steps = 0;
  for (; steps < 100; ++steps) {
    expect_ok(kindling_is_done(trainer, &is_done));
    if (is_done != 0) break;
    expect_ok(samples.train(trainer));
  }
  EXPECT_EQ(steps, 5);
  samples.y.numbers[0] = NAN;
  for (steps = 0; steps < 100; ++steps) {
    expect_ok(kindling_is_done(diverging, &is_done));
    if (is_done != 0) break;
    expect_ok(samples.train(diverging));
  }
  EXPECT_LE(steps, 3);
  expect_ok(kindling_trainer_free(trainer));
  expect_ok(kindling_trainer_free(diverging));
}

TEST(CSteps, InputsAreNotTargets) {
  const kindling_trainer trainer = make_trainer();
  Samples<float> samples(KINDLING_FLOAT32);
  const kindling_array x[] = {samples.x.view(), samples.x.view()}, y[] = {samples.y.view(), samples.y.view()};
  EXPECT_EQ(kindling_train_step(trainer, x, 2, y, 1), KINDLING_DATA_ERROR);
  EXPECT_EQ(kindling_train_step(trainer, x, 2, nullptr, 0), KINDLING_DATA_ERROR);
  EXPECT_EQ(kindling_train_step(trainer, x, 1, y, 2), KINDLING_DATA_ERROR);
  EXPECT_EQ(kindling_infer(trainer, x, 2, y, 1), KINDLING_DATA_ERROR);
  EXPECT_STREQ(kindling_error_part(KINDLING_FOUND), "2 inputs");
  expect_ok(kindling_trainer_free(trainer));
}

TEST(CSteps, WeightsGoIntoAnotherTrainer) {
  const Scratch folder;
  Samples<float> samples(KINDLING_FLOAT32);
  const kindling_trainer first = make_trainer();
  for (int step = 0; step < 5; ++step) expect_ok(samples.train(first));
  const kindling_array x = samples.x.view();
  const auto outputs = [&](kindling_trainer trainer) {
    OwnArray<float> out(KINDLING_FLOAT32, {32, 1});
    const kindling_array view = out.view();
    expect_ok(kindling_infer(trainer, &x, 1, &view, 1));
    return out.numbers;
  };
  for (const char* name : {"w.safetensors", "w.pt", "checkpoint.safetensors"}) {
    const std::string file = (folder / std::string(name)).string();
    if (std::string(name).starts_with("checkpoint"))
      expect_ok(kindling_save(first, file.c_str()));
    else
      expect_ok(kindling_save_weights(first, file.c_str()));
    const kindling_trainer second = make_trainer();
    expect_ok(kindling_load_weights(second, file.c_str()));
    EXPECT_EQ(outputs(second), outputs(first)) << name;
    expect_ok(kindling_trainer_free(second));
  }
  expect_ok(kindling_trainer_free(first));
}

}  // namespace
}  // namespace kindling::test
