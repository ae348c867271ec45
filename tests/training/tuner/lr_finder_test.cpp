// The search for a learning rate: what it finds, and that it leaves nothing behind.
#include "kindling/training/lr_finder.h"

#include <cmath>
#include <limits>

#include "kindling/base/error.h"
#include "kindling/data/digits.h"
#include "kindling/models/mlp.h"
#include "kindling/models/small_cnn.h"
#include "kindling/optim/adam.h"
#include "kindling/optim/lbfgs.h"
#include "kindling/tensors/lazy.h"
#include "kindling/tensors/state_dict.h"
#include "support/device_under_test.h"
#include "support/rank_threads.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"
#include "training/loop/small_fit.h"
#include "training/step/point_gan.h"

namespace kindling {
namespace {

// A model with all that a step may change: lazy layers, running statistics, dropout.
std::shared_ptr<SmallCnn> changeable() {
  at::manual_seed(7);
  return std::make_shared<SmallCnn>(SmallCnnOptions{.channels = {4}, .hidden = 8});
}

struct FitOutcome {
  StateDict weights;
  std::vector<NamedValues> records;
  at::Tensor next_random;
};

class LrFinder : public OnDevice {
 protected:
  TrainerOptions options() const {
    return {.max_epochs = 3,
            .num_gpus = num_gpus_wanted(),
            .gradient_clip_val = 1,
            .optimizer = [](const ParameterGroups& all) {
              return std::make_unique<Adam>(all, AdamOptions{.lr = 0.01});
            }};
  }

  // What comes of a fit with or without a search before it.
  FitOutcome outcome(TrainerOptions options, bool searches) const {
    NoiseImages data(32, 8, 8);
    const auto model = changeable();
    if (searches) {
      data.prepare();
      const LrFinderResult result = find_lr(options, model, data, {.num_training_steps = 11});
      EXPECT_FALSE(result.lrs.empty());
    }
    const auto logger = std::make_shared<MemoryLogger>();
    options.loggers = {logger};
    options.log_every_n_steps = 1;
    Trainer(options).fit(model, data);
    FitOutcome made{.weights = state_dict(*model), .records = {}, .next_random = at::rand({3})};
    for (const Record& record : logger->records()) made.records.push_back(numbers_of(record));
    return made;
  }
};

KINDLING_RUN_ON_TRAINER_DEVICES(LrFinder);

TEST_P(LrFinder, LeavesALaterFitBitIdentical) {
  for (const char* precision : {"32-true", "64-true", "bf16-mixed"}) {
    TrainerOptions with = options();
    with.precision = precision;
    if (!device_.is_cpu() && with.precision != "32-true") continue;
    const FitOutcome plain = outcome(with, false), after = outcome(with, true);
    ASSERT_EQ(plain.weights.tensors.size(), after.weights.tensors.size());
    for (const auto& [name, tensor] : plain.weights.tensors)
      EXPECT_TRUE(same(*after.weights.find(name), tensor)) << precision << " " << name;
    EXPECT_EQ(plain.records, after.records) << precision;
    EXPECT_TRUE(same(after.next_random, plain.next_random)) << precision;
  }
}

TEST_P(LrFinder, RestoresTheModelAndItsDevice) {
  NoiseImages data(32, 8, 8);
  const auto model = std::make_shared<SmallCnn>(SmallCnnOptions{.channels = {4}, .hidden = 8});
  Trainer trainer(options());
  trainer.fit(model, data);  // shapes, statistics and a board; on the device
  model->eval();
  model->to(at::kCPU);
  at::Tensor weight = model->parameters()[0];
  weight.mutable_grad() = at::ones_like(weight);
  StateDict before = state_dict(*model);
  for (auto& [name, tensor] : before.tensors) tensor = tensor.clone();
  const void* const memory = weight.data_ptr();
  const std::string board = model->board().text();
  TrainerOptions with = options();
  with.precision = "64-true";
  with.channels_last = "on";
  if (!device_.is_cpu()) with = options();
  find_lr(with, model, data, {.num_training_steps = 6});
  const StateDict after = state_dict(*model);
  for (const auto& [name, tensor] : before.tensors) {
    const at::Tensor* const now = after.find(name);
    EXPECT_TRUE(same(*now, tensor)) << name;
    EXPECT_EQ(now->strides(), tensor.strides()) << name;
    EXPECT_TRUE(now->is_cpu()) << name;
  }
  EXPECT_EQ(weight.data_ptr(), memory);
  EXPECT_TRUE(same(weight.grad(), at::ones_like(weight)));
  for (const auto& layer : model->modules()) EXPECT_FALSE(layer->is_training());
  EXPECT_EQ(model->board().text(), board);
  EXPECT_EQ(model->trainer().max_epochs(), 3);  // of its own trainer
}

TEST_P(LrFinder, KeepsLazyLayersUninitialized) {
  NoiseImages data(32, 8, 8);
  const auto model = changeable();
  find_lr(options(), model, data, {.num_training_steps = 3});
  std::int64_t num_lazy = 0;
  for (const auto& layer : model->modules())
    if (const auto* lazy = dynamic_cast<const LazyLayer*>(layer.get())) {
      EXPECT_FALSE(lazy->is_materialized());
      EXPECT_EQ(lazy->type, at::kFloat);
      ++num_lazy;
    }
  EXPECT_GE(num_lazy, 3);
}

// Of the training's own callbacks, loggers, schedule, length and validations it takes none.
TEST_P(LrFinder, RunsTrainingStepsOnly) {
  struct Never : Callback {
    void on_fit_start(Trainer&, Module&) override { ADD_FAILURE(); }
  };
  TrainerOptions with = options();
  const auto logger = std::make_shared<MemoryLogger>();
  with.callbacks = {std::make_shared<Never>()};
  with.loggers = {logger};
  with.max_epochs = 1;
  with.max_steps = 2;
  with.max_time = "0:0:0:0";
  with.fast_dev_run = true;
  with.schedule = [](const SchedulePoint&) { return 77.0; };
  with.optimizer = sgd(0.1);
  TensorData data = ramp(9, 4, 3);
  const auto model = std::make_shared<Slope>();
  const LrFinderResult result =
      find_lr(with, model, data, {.num_training_steps = 7, .early_stop_threshold = 0});
  EXPECT_EQ(model->train_sizes.size(), 7U);  // over the end of an epoch
  EXPECT_EQ(model->num_val_batches, 0);
  EXPECT_TRUE(logger->records().empty());
  EXPECT_EQ(result.lrs.size(), 7U);
  EXPECT_EQ(result.initial_lr, 0.1);
  EXPECT_FALSE(result.stopped_early);
}

TEST_P(LrFinder, RatesGrowAsConfigured) {
  TrainerOptions with = options();
  with.optimizer = sgd(0.1);
  TensorData data = ramp(9, 0, 3);
  const auto rates = [&](LrFinderOptions finder) {
    finder.early_stop_threshold = 0;
    return find_lr(with, std::make_shared<Slope>(), data, finder).lrs;
  };
  const auto by_factor = rates({.min_lr = 1e-4, .max_lr = 1e-2, .num_training_steps = 5});
  const auto by_difference =
      rates({.min_lr = 0.01, .max_lr = 0.05, .num_training_steps = 5, .mode = "linear"});
  ASSERT_EQ(by_factor.size(), 5U);
  ASSERT_EQ(by_difference.size(), 5U);
  for (int i = 0; i < 5; ++i) {  // 1e-12: a few roundings in double precision
    EXPECT_NEAR(by_factor[i] / std::pow(10.0, -4 + 0.5 * i), 1, 1e-12);
    EXPECT_NEAR(by_difference[i], 0.01 + 0.01 * i, 1e-12);
  }
}

// The update of a step has its rate: the loss |w - 2|·x of Slope falls by it.
TEST_P(LrFinder, LossesMatchTheGrowingRates) {
  TrainerOptions with = options();
  with.gradient_clip_val = 0;
  with.optimizer = sgd(7);
  const at::Tensor x = at::ones({4, 1});
  TensorData data({x, 2 * x}, {}, {.batch_size = 4, .shuffle = false});
  const LrFinderResult result =
      find_lr(with, std::make_shared<Slope>(), data,
              {.min_lr = 0.125, .max_lr = 0.5, .num_training_steps = 4, .mode = "linear"});
  ASSERT_EQ(result.losses.size(), 4U);
  double weight = 0, average = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(result.losses[i], 2 - weight, 1e-6);  // float32
    weight += result.lrs[i];
    average = 0.98 * average + 0.02 * result.losses[i];
    EXPECT_NEAR(result.smoothed[i], average / (1 - std::pow(0.98, i + 1.0)), 1e-12);
  }
}

TEST_P(LrFinder, GroupsKeepTheRatiosOfTheirRates) {
  struct TwoSlopes : Slope {
    TwoSlopes() : other(register_parameter("other", at::zeros({1}))) {}
    at::Tensor training_step(const Batch& batch) override { return (batch[0] * (weight + other)).mean(); }
    at::Tensor other;
  };
  struct Rates : Sgd {
    using Sgd::Sgd;
    std::vector<double>* seen = nullptr;
    void update(const Update& update) override {
      seen->push_back(update.lr.number);
      Sgd::update(update);
    }
  };
  std::vector<double> seen;
  TrainerOptions with = options();
  with.optimizer = [&](const ParameterGroups& all) {
    auto made =
        std::make_unique<Rates>(by_name(all, {{.match = "other", .lr = 0.02}}), SgdOptions{.lr = 0.1});
    made->seen = &seen;
    return made;
  };
  TensorData data = ramp(9, 0, 3);
  const LrFinderResult result = find_lr(with, std::make_shared<TwoSlopes>(), data, {.num_training_steps = 2});
  ASSERT_EQ(seen.size(), 4U);
  EXPECT_DOUBLE_EQ(result.lrs[1], 1);
  EXPECT_DOUBLE_EQ(seen[2], 1);
  EXPECT_DOUBLE_EQ(seen[3], 0.2);
}

// The gradient keeps its size while the rate grows: losses grow with it.
TEST_P(LrFinder, StopsWhereTheLossGrowsTooLarge) {
  TrainerOptions with = options();
  with.gradient_clip_val = 0;
  with.optimizer = sgd(0.1);
  const auto search = [&](double threshold, double offset = 0) {
    struct Lowered : Slope {
      double offset = 0;
      at::Tensor loss(const at::Tensor& y, const at::Tensor& labels) override {
        return Slope::loss(y, labels) + offset;
      }
    };
    const auto model = std::make_shared<Lowered>();
    model->offset = offset;
    TensorData data = ramp(9, 0, 3);
    return find_lr(
        with, model, data,
        {.min_lr = 1e-3, .max_lr = 1e3, .num_training_steps = 60, .early_stop_threshold = threshold});
  };
  const LrFinderResult all = search(0), four = search(4), eight = search(8);
  EXPECT_FALSE(all.stopped_early);
  EXPECT_EQ(all.lrs.size(), 60U);
  EXPECT_TRUE(four.stopped_early);
  EXPECT_LT(four.lrs.size(), eight.lrs.size());
  EXPECT_LT(eight.lrs.size(), 60U);
  double best = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i + 1 < four.smoothed.size(); ++i) {
    best = std::min(best, four.smoothed[i]);
    EXPECT_LE(four.smoothed[i], 4 * best);
    EXPECT_EQ(four.smoothed[i], all.smoothed[i]);
  }
  EXPECT_GT(four.smoothed.back(), 4 * best);
  EXPECT_GT(search(4, -1e3).lrs.size(), eight.lrs.size());  // a loss below 0 has no such bound
}

TEST_P(LrFinder, StopsAtANonfiniteLoss) {
  struct Broken : Slope {
    at::Tensor training_step(const Batch& batch) override {
      const at::Tensor loss = Slope::training_step(batch);
      return trainer().global_step() >= 5 ? loss / 0 : loss;
    }
  };
  TrainerOptions with = options();
  with.optimizer = sgd(0.1);
  const Scratch scratch;
  with.nonfinite_dir = scratch.folder();
  TensorData data = ramp(9, 0, 3);
  const auto model = std::make_shared<Broken>();
  const LrFinderResult result =
      find_lr(with, model, data, {.num_training_steps = 20, .early_stop_threshold = 0});
  EXPECT_TRUE(result.stopped_early);
  EXPECT_EQ(result.lrs.size(), 6U);
  EXPECT_TRUE(same(model->weight, at::zeros({1})));
  EXPECT_TRUE(std::filesystem::is_empty(scratch.folder()));
}

TEST_P(LrFinder, EndsWhenAStopIsRequested) {
  struct Stopping : Slope {
    StopToken token;
    at::Tensor training_step(const Batch& batch) override {
      if (trainer().global_step() == 3) token.request_stop();
      return Slope::training_step(batch);
    }
  };
  const auto model = std::make_shared<Stopping>();
  TensorData data = ramp(9, 0, 3);
  const LrFinderResult result = find_lr(options(), model, data, {.early_stop_threshold = 0}, model->token);
  EXPECT_EQ(result.lrs.size(), 4U);
  EXPECT_FALSE(result.stopped_early);
}

TEST_P(LrFinder, RefusesModelsWithoutASingleRate) {
  TensorData data = ramp(9, 0, 3);
  EXPECT_EQ(
      error_text<ConfigError>([&] { find_lr(options(), std::make_shared<PointGan>(), data); }),
      "find_lr: the model is a ManualModule, which creates its optimizers itself; expected: a model with one "
      "optimizer; tune their learning rates by hand");
  TrainerOptions with = options();
  with.gradient_clip_val = 0;
  with.optimizer = [](const ParameterGroups& all) { return std::make_unique<Lbfgs>(all); };
  const auto model = std::make_shared<Slope>();
  EXPECT_EQ(error_text<ConfigError>([&] { find_lr(with, model, data); }),
            "find_lr: the optimizer evaluates the loss of a batch several times (lbfgs); expected: an "
            "optimizer that evaluates the loss once per step");
  with.optimizer = sgd(0);
  EXPECT_NE(error_text<ConfigError>([&] {
              find_lr(with, model, data);
            }).find("the learning rate of the first parameter group is 0"),
            std::string::npos);
  EXPECT_TRUE(same(model->weight, at::zeros({1})));
}

// Without a search, too; what the trainer's options make is the search's matter.
TEST_P(LrFinder, RefusesManualModulesBeforehand) {
  struct OwnLbfgs : Slope {
    std::unique_ptr<Optimizer> configure_optimizers() override { return std::make_unique<Lbfgs>(*this); }
  };
  const auto refusal = [](const TrainerOptions& trainer, const std::shared_ptr<Module>& model) {
    return error_text<ConfigError>([&] { require_one_lr(trainer, *model); });
  };
  EXPECT_NE(refusal({}, std::make_shared<PointGan>()).find("ManualModule"), std::string::npos);
  EXPECT_NE(refusal({}, std::make_shared<OwnLbfgs>()).find("lbfgs"), std::string::npos);
  EXPECT_EQ(refusal(options(), std::make_shared<OwnLbfgs>()), "(no error)");
  EXPECT_EQ(refusal({}, std::make_shared<Slope>()), "(no error)");
  EXPECT_EQ(refusal({}, std::make_shared<SmallCnn>()), "(no error)");  // has lazy layers
}

TEST(LrFinderOptionsTest, AreChecked) {
  TensorData data = ramp(9, 0, 3);
  const auto error = [&](const LrFinderOptions& finder) {
    return error_text<ConfigError>([&] { find_lr({}, std::make_shared<Slope>(), data, finder); });
  };
  EXPECT_NE(error({.min_lr = 0}).find("min_lr"), std::string::npos);
  EXPECT_NE(error({.max_lr = 0}).find("max_lr"), std::string::npos);
  EXPECT_NE(error({.num_training_steps = 1}).find("num_training_steps"), std::string::npos);
  EXPECT_NE(error({.mode = "log"}).find("exponential"), std::string::npos);
  EXPECT_NE(error({.early_stop_threshold = -1}).find("early_stop_threshold"), std::string::npos);
  EXPECT_EQ(error({.min_lr = 0.5, .max_lr = 0.25}),
            "LrFinderOptions: min_lr = 0.5, max_lr = 0.25; expected: min_lr below max_lr");
}

TEST(LrFinderSuggestion, IsWhereTheCurveFallsMostSteeply) {
  LrFinderResult result;
  result.lrs = {1, 2, 3, 4, 5, 6, 7, 8};
  result.smoothed = {100, 9, 9, 8, 4, 3, 9, 0};
  // Central differences from 9 (at 2) on: 0, -0.5, -2.5, -2.5, …: of equals the first.
  EXPECT_EQ(result.suggestion(1, 1), 4);
  EXPECT_EQ(result.suggestion(0, 0), 1);  // one-sided at the ends: -91 at the first
}

TEST(LrFinderSuggestion, IsEmptyIfTheCurveNeverFalls) {
  LrFinderResult result;
  EXPECT_EQ(result.suggestion(), std::nullopt);
  result.lrs = {1, 2, 3, 4};
  result.smoothed = {1, 2, 3, 4};
  EXPECT_EQ(result.suggestion(0, 0), std::nullopt);
  result.smoothed = {4, 3, 2, 1};
  EXPECT_EQ(result.suggestion(1, 2), std::nullopt);  // one point
  EXPECT_EQ(result.suggestion(2, 0), 3);
  EXPECT_EQ(result.suggestion(), std::nullopt);  // the default skips ten
  result.smoothed = {4, 3, 1, std::numeric_limits<double>::quiet_NaN()};
  EXPECT_EQ(result.suggestion(0, 0), 3);
  EXPECT_EQ(result.suggestion(-1, 0), std::nullopt);
}

TEST(LrFinderChart, ShowsCurveAndSuggestion) {
  LrFinderResult result;
  for (int i = 0; i < 20; ++i) {
    result.lrs.push_back(std::pow(10, -5 + 0.25 * i));
    result.smoothed.push_back(i < 15 ? 3 : 3 - (i - 14) * 0.5);
  }
  const Chart chart = result.chart();
  EXPECT_EQ(chart.xscale, AxisScale::log);
  ASSERT_EQ(chart.curves.size(), 2U);
  EXPECT_EQ(chart.curves[0].y, result.smoothed);
  EXPECT_EQ(chart.curves[1].x, std::vector<double>(2, *result.suggestion()));
  EXPECT_EQ(chart.curves[1].y, (std::vector<double>{0.5, 3}));
  EXPECT_NE(to_svg(chart).find("suggestion"), std::string::npos);
  result.is_exponential = false;
  result.smoothed.assign(20, 1);
  EXPECT_EQ(result.chart().xscale, AxisScale::linear);
  EXPECT_EQ(result.chart().curves.size(), 1U);
}

// A rate that is found in seconds is good enough: 0.97 is what a model of this size reaches with a rate that
// is chosen by hand and some to spare (0.99).
TEST(LrFinderOnDigits, SuggestsARateThatLearns) {
  const std::map<std::string, std::shared_ptr<Module>> models{{"small_cnn", std::make_shared<SmallCnn>()},
                                                              {"mlp", std::make_shared<Mlp>()}};
  for (const auto& [name, model] : models) {
    double found = 0;
    Digits data({.batch_size = 32});
    TrainerOptions options{.max_epochs = 12, .gradient_clip_val = 1};
    options.optimizer = [&](const ParameterGroups& all) {
      return std::make_unique<AdamW>(all, AdamWOptions{.lr = found > 0 ? found : 1e-3});
    };
    at::manual_seed(0);
    const LrFinderResult result = find_lr(options, model, data);
    ASSERT_TRUE(result.suggestion()) << name;
    found = *result.suggestion();
    const FitResult fit = Trainer(options).fit(model, data);
    RecordProperty(name, std::to_string(found) + " " + std::to_string(fit.metrics.at("val_acc")));
    EXPECT_GE(fit.metrics.at("val_acc"), 0.97) << name << " with " << found;
  }
}

// --- Several ranks ---

TrainerOptions options_on(const std::shared_ptr<ProcessGroup>& group) {
  TrainerOptions options{.max_epochs = 1, .step_graph = "off", .optimizer = sgd(0.1)};
  options.process_group = group;
  return options;
}

// Requests a stop in its third step.
struct StopsAtThird : Slope {
  explicit StopsAtThird(StopToken token) : stop(std::move(token)) {}
  at::Tensor training_step(const Batch& batch) override {
    if (train_sizes.size() == 2) stop.request_stop(FitReason::requested);
    return Slope::training_step(batch);
  }
  StopToken stop;
};

// Only rank 0 gets the records of the steps.
TEST(LrFinderOfRanks, HasTheSameResultOnAll) {
  for (const double threshold : {0., 4.}) {
    const auto groups = ProcessGroup::from_threads(2, {.timeout_s = 60});
    std::vector<LrFinderResult> results(2);
    on_ranks(groups, [&](ProcessGroup& group) {
      const auto rank = static_cast<std::size_t>(group.rank());
      TensorData data = ramp(24, 0, 3);
      results[rank] = find_lr(options_on(groups[rank]), std::make_shared<Slope>(), data,
                              {.num_training_steps = 40, .early_stop_threshold = threshold});
    });
    EXPECT_EQ(results[0].lrs.size() == 40, threshold == 0);  // the loss grows with the samples
    EXPECT_EQ(results[0].stopped_early, threshold > 0);
    EXPECT_EQ(results[1].lrs, results[0].lrs);
    EXPECT_EQ(results[1].losses, results[0].losses);
    EXPECT_EQ(results[1].smoothed, results[0].smoothed);
    EXPECT_EQ(results[1].initial_lr, 0.1);
    EXPECT_EQ(results[1].stopped_early, results[0].stopped_early);
  }
}

TEST(LrFinderOfRanks, StopsOnAll) {
  const auto groups = ProcessGroup::from_threads(2, {.timeout_s = 60});
  std::vector<LrFinderResult> results(2);
  const std::vector<StopToken> stops(2);
  on_ranks(groups, [&](ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    TensorData data = ramp(24, 0, 3);
    const auto model = std::make_shared<StopsAtThird>(rank == 1 ? stops[1] : StopToken());
    results[rank] = find_lr(options_on(groups[rank]), model, data,
                            {.num_training_steps = 40, .early_stop_threshold = 0}, stops[rank]);
    EXPECT_TRUE(stops[rank].stop_requested()) << rank;
  });
  EXPECT_LT(results[0].lrs.size(), 6U);
  EXPECT_EQ(results[1].lrs, results[0].lrs);
}

}  // namespace
}  // namespace kindling
