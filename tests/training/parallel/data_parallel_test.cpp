// Data-parallel training equals training in a single process. Ranks are threads, each with its own trainer.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <thread>

#include "kindling/base/error.h"
#include "kindling/checkpoint/checkpoint_folder.h"
#include "kindling/tensors/checkpoint_file.h"
#include "kindling/training/early_stopping.h"
#include "kindling/training/exponential_moving_average.h"
#include "kindling/training/layer_freezing.h"
#include "kindling/training/model_checkpoint.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"
#include "training/parallel/counting_group.h"
#include "training/parallel/rank_runs.h"

namespace kindling {
namespace {

// Sums over samples in another order: some last bits per step, which AdamW's division by small numbers makes
// larger. Seen: 2e-7.
void expect_close(const RankRun& one, const RankRun& other) {
  const auto a = one.weights(), b = other.weights();
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_LE((a[i] - b[i]).abs().max().item<double>(), 1e-6 * a[i].abs().max().item<double>() + 1e-7) << i;
  for (const char* name : {"train_loss", "val_loss", "val_acc"})
    EXPECT_NEAR(one.result.metrics.at(name), other.result.metrics.at(name), 2e-6) << name;
}

TEST(DataParallel, TrainsLikeASingleProcessWithTheSameGlobalBatch) {
  for (const std::int64_t window : {1, 3})
    for (const char* step_graph : {"off", "on"}) {
      const auto change = [&](TrainerOptions& options, std::int64_t) {
        options.accumulate_grad_batches = window;
        options.step_graph = step_graph;
      };
      const auto alone = run_ranks(1, change);
      for (const std::int64_t size : {2, 4}) {
        SCOPED_TRACE(std::to_string(size) + " processes, window " + std::to_string(window) + ", " +
                     step_graph);
        const auto runs = run_ranks(size, change);
        expect_replicas(runs);
        expect_close(alone[0], runs[0]);
        EXPECT_EQ(runs[0].result.progress.global_step, alone[0].result.progress.global_step);
      }
    }
}

TEST(DataParallel, OverfitsAsManyBatchesAsASingleProcess) {
  const auto change = [](TrainerOptions& options, std::int64_t) {
    options.overfit_batches = CountOrFraction(0.4);
  };
  const auto alone = run_ranks(1, change), runs = run_ranks(2, change);
  EXPECT_EQ(alone[0].result.progress.global_step, 3 * 2);
  EXPECT_EQ(runs[1].result.progress.global_step, 3 * 2);
}

TEST(DataParallel, CallsLoggersOnRank0Only) {
  const auto runs = run_ranks(2);
  EXPECT_EQ(runs[0].logger->records().size(), 3U);
  EXPECT_TRUE(runs[1].logger->records().empty());
}

// Sleeps in each batch on rank 1; rank 0 waits for it when gradients are exchanged.
TEST(DataParallel, RecordsTheTimePerStepOfEachRankWithoutTheExchange) {
  struct Slow : Mlp {
    Slow() : Mlp(MlpOptions{.hidden = {16}}) {}
    at::Tensor training_step(const Batch& batch) override {
      if (is_slow) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      return Mlp::training_step(batch);
    }
    bool is_slow = false;
  };
  const auto runs = run_ranks(
      2, [](TrainerOptions& options, std::int64_t) { options.max_epochs = 1; },
      [rank = 0]() mutable {
        const auto model = std::make_shared<Slow>();
        model->forward(at::zeros({1, 100}));
        model->is_slow = rank++ == 1;
        return model;
      });
  const Metrics& metrics = runs[0].result.metrics;
  EXPECT_GE(metrics.at("step_time_s/rank1"), 0.05);
  EXPECT_LT(metrics.at("step_time_s/rank0"), metrics.at("step_time_s/rank1"));
  EXPECT_GE(metrics.at("epoch_time_s"), 5 * 0.05);
  EXPECT_EQ(runs[1].result.metrics.at("step_time_s/rank0"), metrics.at("step_time_s/rank0"));
  EXPECT_FALSE(run_ranks(1)[0].result.metrics.contains("step_time_s/rank0"));
}

TEST(DataParallel, TakesBuffersFromRank0) {
  for (const char* precision : {"32-true", "64-true"}) {
    const auto runs = run_ranks(
        2, [&](TrainerOptions& options, std::int64_t) { options.precision = precision; },
        [] { return std::make_shared<Normed>(); }, /*num_samples=*/48);
    expect_replicas(runs);
    EXPECT_GT(runs[0].model->named_buffers()["net.2.running_mean"].abs().sum().item<double>(), 0);
  }
}

TEST(DataParallel, LeavesUnusedParametersUnchanged) {
  at::Tensor first_of_never;
  bool is_first = true;
  const auto runs = run_ranks(2, {}, [&] {
    auto model = std::make_shared<Branches>();
    model->uses_branch = is_first;
    if (is_first) first_of_never = model->never->weight.detach().clone();
    is_first = false;
    return model;
  });
  expect_replicas(runs);
  EXPECT_TRUE(std::dynamic_pointer_cast<Branches>(runs[1].model)->never->weight.equal(first_of_never));
  EXPECT_TRUE(std::dynamic_pointer_cast<Branches>(runs[1].model)->sometimes->weight.grad().defined());
}

TEST(DataParallel, StopsAllRanksAfterTheSameStep) {
  const auto runs = run_ranks(3, [](TrainerOptions& options, std::int64_t rank) {
    options.callbacks = {std::make_shared<StopsAt>(rank == 2 ? 7 : -1, FitReason::requested)};
  });
  expect_replicas(runs);
  for (const RankRun& run : runs) {
    EXPECT_EQ(run.result.status, FitStatus::stopped);
    EXPECT_EQ(run.result.reason, FitReason::requested);
    EXPECT_EQ(run.result.progress.global_step, 8);  // requested after step 7, agreed on in step 8
  }
}

TEST(DataParallel, StopsAllRanksAtANonfiniteLossOfOne) {
  bool spoils = false;
  const auto runs = run_ranks(2, {}, [&] {
    auto model = std::make_shared<Spoilt>();
    model->spoils = std::exchange(spoils, true);  // that of rank 1
    return model;
  });
  for (const RankRun& run : runs) {
    EXPECT_EQ(run.result.status, FitStatus::diverged);
    EXPECT_EQ(run.result.diverged_step, 3);
    for (const at::Tensor& weight : run.weights()) EXPECT_TRUE(weight.isfinite().all().item<bool>());
  }
}

// Changes a weight on one rank only.
class Tampers : public Callback {
 public:
  Tampers(bool is_at_work, double factor) : is_at_work_(is_at_work), factor_(factor) {}
  void on_train_batch_end(Trainer& trainer, Module& model) override {
    if (!is_at_work_ || trainer.progress().global_step != 7) return;
    const at::NoGradGuard no_grad;
    at::Tensor weight = model.parameters()[2];
    weight[0][0].mul_(factor_);
  }

 private:
  bool is_at_work_;
  double factor_;
};

// The error of each rank; empty: none.
std::vector<std::string> errors_of(const std::function<void(TrainerOptions&, std::int64_t)>& change,
                                   const std::function<std::shared_ptr<Module>(std::int64_t)>& make,
                                   const std::function<TensorData(std::int64_t)>& data_of) {
  std::vector<std::string> errors(2);
  const auto groups = ProcessGroup::from_threads(2, {.timeout_s = 60});
  on_ranks(groups, [&](ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    TrainerOptions options = options_for(groups[rank]);
    if (change) change(options, group.rank());
    TensorData data = data_of(group.rank());
    try {
      Trainer(options).fit(make(group.rank()), data);
    } catch (const Error& error) {
      errors[rank] = error.what();
    }
  });
  return errors;
}

TEST(DataParallel, DetectsDifferingReplicasAtTheEndOfTheEpoch) {
  for (const char* precision : {"32-true", "64-true", "bf16-true"}) {
    const bool is_coarse = std::string(precision) == "bf16-true";
    const auto errors = errors_of(
        [&](TrainerOptions& options, std::int64_t rank) {
          options.precision = precision;
          options.gradient_clip_val = 0;
          options.callbacks = {std::make_shared<Tampers>(rank == 1, is_coarse ? 1.5 : 1 + 1e-6)};
        },
        [](std::int64_t) { return small_mlp(); }, [](std::int64_t) { return rank_images(2); });
    EXPECT_NE(errors[0].find("after step 10: parameter 'net.3.weight' of rank 1 differs from that of "
                             "rank 0"),
              std::string::npos)
        << precision << ": " << errors[0];
    EXPECT_FALSE(errors[1].empty());
  }
}

TEST(DataParallel, RefusesRanksThatDisagree) {
  const auto model = [](std::int64_t) { return small_mlp(); };
  const auto data = [](std::int64_t) { return rank_images(2); };
  for (const std::string& error : errors_of(
           [](TrainerOptions&options, std::int64_t rank) { options.max_epochs = 3 + rank; }, model, data))
    EXPECT_NE(error.find("max_epochs is '4' on rank 1 and '3' on rank 0"), std::string::npos) << error;
  for (const std::string& error : errors_of(
           {}, [](std::int64_t rank) { return mlp({16 + rank}); }, data))
    EXPECT_NE(error.find("[17, 100]"), std::string::npos) << error;
  for (const std::string& error :
       errors_of({}, model, [](std::int64_t rank) { return rank_images(2, kRankSamples + rank); }))
    EXPECT_NE(error.find("training's number of samples is '51' on rank 1 and '50' on rank 0"),
              std::string::npos)
        << error;
}

TEST(DataParallel, NamesAllKindsOfDifferences) {
  const auto model = [](std::int64_t) { return small_mlp(); };
  const auto data = [](std::int64_t) { return rank_images(2); };
  const auto expect_named = [](const std::vector<std::string>& errors, const std::string& text) {
    for (const std::string& error : errors) EXPECT_NE(error.find(text), std::string::npos) << error;
  };
  expect_named(errors_of([](TrainerOptions& options,
                            std::int64_t rank) { options.precision = rank == 1 ? "bf16-mixed" : "32-true"; },
                         model, data),
               "precision is 'bf16-mixed' on rank 1 and '32-true' on rank 0");
  expect_named(
      errors_of([](TrainerOptions& options, std::int64_t rank) { options.shard_optimizer_state = rank == 1; },
                model, data),
      "shard_optimizer_state is 'true' on rank 1 and 'false' on rank 0");
  expect_named(errors_of(
                   {},
                   [](std::int64_t rank) {
                     auto with_buffer = mlp({16});
                     with_buffer->register_buffer("seen", at::zeros({2 + rank}));
                     return with_buffer;
                   },
                   data),
               "buffer 'seen' is 'Float [3], frozen' on rank 1");
  expect_named(errors_of(
                   {},
                   [](std::int64_t rank) {
                     auto frozen = mlp({16});
                     frozen->parameters()[0].set_requires_grad(rank == 0);
                     return frozen;
                   },
                   data),
               ", frozen' on rank 1");
  expect_named(errors_of({}, model,
                         [](std::int64_t rank) {
                           const at::Tensor x = at::zeros({kRankSamples, 1, 10, 10}),
                                            y = at::zeros({kRankSamples}, at::kLong);
                           return TensorData({x, y}, {x.narrow(0, 0, 20 + rank), y.narrow(0, 0, 20 + rank)},
                                             {.batch_size = kGlobalBatch / 2});
                         }),
               "validation's number of samples is '21' on rank 1 and '20' on rank 0");
}

TEST(DataParallel, NamesTheOptionOfACallbackThatDiffers) {
  using Change = std::function<void(TrainerOptions&, std::int64_t)>;
  const std::pair<const char*, Change> changes[] = {
      {"EarlyStopping.patience",
       [](auto& of, auto rank) {
         of.callbacks = {std::make_shared<EarlyStopping>(EarlyStoppingOptions{.patience = 3 + rank})};
       }},
      {"LayerFreezing 2.epochs",
       [](auto& of, auto rank) {
         for (const std::int64_t epochs : {std::int64_t{1}, 1 + rank})
           of.callbacks.push_back(std::make_shared<LayerFreezing>(
               LayerFreezingOptions{.patterns = {"net.1.*"}, .epochs = epochs}));
       }},
      {"ExponentialMovingAverage.decay",
       [](auto& of, auto rank) {
         of.callbacks = {std::make_shared<ExponentialMovingAverage>(
             ExponentialMovingAverageOptions{.decay = 0.5 + 0.25 * static_cast<double>(rank)})};
       }},
      {"ModelCheckpoint.every_n_steps",
       [](auto& of, auto rank) {
         of.callbacks = {std::make_shared<ModelCheckpoint>(  // it is refused before it opens a directory
             ModelCheckpointOptions{.dirpath = "unused", .every_n_steps = 4 + 2 * rank})};
       }},
  };
  for (const auto& [name, change] : changes)
    for (const std::string& error : errors_of(
             change, [](std::int64_t) { return small_mlp(); }, [](std::int64_t) { return rank_images(2); })) {
      EXPECT_NE(error.find(std::string(name) + " is "), std::string::npos) << name << ": " << error;
      EXPECT_NE(error.find("on rank 1 and "), std::string::npos) << error;
    }
}

// --- The same steps as on one rank ---

std::int64_t num_configs() {
  const char* set = std::getenv("KINDLING_SOAK_RANKS");
  return set == nullptr ? 10 : std::atoi(set);
}

// Where a run validates and stops.
struct Course : Callback {
  void on_validation_end(Trainer& trainer, Module&) override {
    validations.push_back(trainer.progress().global_step);
  }
  std::vector<std::int64_t> validations;
};

// Options that stop early at random places: between epochs or within, at once or when min_steps are reached.
class RandomCourse {
 public:
  explicit RandomCourse(std::mt19937& random) {
    const auto pick = [&](std::int64_t below) { return static_cast<std::int64_t>(random()) % below; };
    accumulate_ = 1 + pick(2);
    interval_ =
        pick(2) == 0 ? CountOrFraction(1 + pick(5)) : CountOrFraction(0.2 * static_cast<double>(1 + pick(5)));
    every_n_epoch_ = 1 + pick(2);
    min_epochs_ = pick(3);
    min_steps_ = pick(12);
    stopping_ = {.min_delta = 0.05 * static_cast<double>(pick(10)), .patience = pick(3)};
  }
  void apply(TrainerOptions& options) const {
    options.max_epochs = 6;
    options.accumulate_grad_batches = accumulate_;
    options.val_check_interval = interval_;
    options.check_val_every_n_epoch = every_n_epoch_;
    options.min_epochs = min_epochs_;
    options.min_steps = min_steps_;
    options.callbacks.push_back(std::make_shared<EarlyStopping>(stopping_));
  }

 private:
  std::int64_t accumulate_, every_n_epoch_, min_epochs_, min_steps_;
  CountOrFraction interval_ = 1.0;
  EarlyStoppingOptions stopping_;
};

struct CourseRun {
  std::vector<std::int64_t> validations;
  RankRun run;
};

CourseRun run_course(std::int64_t num_ranks, std::int64_t shards, const RandomCourse& random) {
  std::vector<std::shared_ptr<Course>> courses;
  for (std::int64_t rank = 0; rank < num_ranks; ++rank) courses.push_back(std::make_shared<Course>());
  auto runs = run_ranks(num_ranks, [&](TrainerOptions& options, std::int64_t rank) {
    options.gradient_shards = shards;
    options.callbacks = {courses[static_cast<std::size_t>(rank)]};
    random.apply(options);
  });
  for (const RankRun& run : runs) expect_same_weights(run.weights(), runs[0].weights());
  for (const auto& course : courses) EXPECT_EQ(course->validations, courses[0]->validations);
  return {courses[0]->validations, std::move(runs[0])};
}

TEST(DataParallel, ValidatesAndStopsEarlyAfterTheSameStepsAsASingleProcess) {
  std::mt19937 random(23);
  std::int64_t num_stopped = 0;
  for (std::int64_t i = 0; i < num_configs() && !testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE("config " + std::to_string(i));
    const RandomCourse course(random);
    for (const std::int64_t shards : {1, 4}) {
      const CourseRun alone = run_course(1, shards, course);
      num_stopped += alone.run.result.reason == FitReason::early_stop ? 1 : 0;
      for (const std::int64_t num_ranks : {2, 3, 4}) {
        if (shards % num_ranks != 0 && shards != 1) continue;
        const CourseRun several = run_course(num_ranks, shards, course);
        EXPECT_EQ(several.validations, alone.validations) << num_ranks << " ranks, " << shards << " shards";
        EXPECT_EQ(several.run.result.reason, alone.run.result.reason);
        EXPECT_EQ(several.run.result.progress.global_step, alone.run.result.progress.global_step);
        if (shards > 1) expect_same_weights(several.run.weights(), alone.run.weights());
      }
    }
  }
  EXPECT_GT(num_stopped, num_configs() / 2);
}

TEST(DataParallel, EndsACustomLoopWithTheEpochThatStopsItEarly) {
  const auto steps_on = [](std::int64_t num_ranks) {
    std::vector<std::shared_ptr<Module>> models;
    for (std::int64_t rank = 0; rank < num_ranks; ++rank) models.push_back(small_mlp());
    std::vector<std::int64_t> steps(models.size());
    fit_on_ranks(num_ranks, [&](const std::shared_ptr<ProcessGroup>& group, std::int64_t rank) {
      TensorData data = rank_images(num_ranks);
      TrainerOptions options = options_for(group);
      options.max_epochs = 6;
      options.callbacks = {
          std::make_shared<EarlyStopping>(EarlyStoppingOptions{.min_delta = 10, .patience = 1})};
      Trainer trainer(options);
      trainer.prepare_data(data);
      trainer.prepare_model(models[static_cast<std::size_t>(rank)]);
      while (!trainer.is_done()) trainer.fit_epoch();
      steps[static_cast<std::size_t>(rank)] = trainer.progress().global_step;
    });
    return steps;
  };
  EXPECT_EQ(steps_on(1), std::vector<std::int64_t>{10});
  EXPECT_EQ(steps_on(2), (std::vector<std::int64_t>{10, 10}));
}

TEST(DataParallel, ReportsAnErrorOfOneRankOnTheOthers) {
  struct Failing : Mlp {
    explicit Failing(bool fails) : Mlp(MlpOptions{.hidden = {16}}), fails_(fails) {}
    at::Tensor training_step(const Batch& batch) override {
      if (fails_ && trainer().batch_index() == 2)
        throw DataError({.place = "sample 7", .found = "it is torn"});
      return Mlp::training_step(batch);
    }
    bool fails_;
  };
  const auto errors = errors_of(
      {}, [](std::int64_t rank) { return std::make_shared<Failing>(rank == 1); },
      [](std::int64_t) { return rank_images(2); });
  EXPECT_EQ(errors[1], "sample 7: it is torn");
  EXPECT_NE(errors[0].find("rank 1: sample 7: it is torn"), std::string::npos) << errors[0];
}

// Rank 1 would wait for rank 0's part of the state while rank 0 trains on.
TEST(DataParallel, FailsToSaveOnAllRanksIfACallbackFailsOnOne) {
  struct Failing : Callback {
    void save_state(StateDict&) const override {
      if (fails) throw std::runtime_error("no state");
    }
    bool fails = false;
  };
  on_ranks(2, [](ProcessGroup& group) {
    const auto callback = std::make_shared<Failing>();
    callback->fails = group.rank() == 0;
    TrainerOptions options = options_for({std::shared_ptr<void>(), &group});
    options.callbacks = {callback};
    Trainer trainer(options);
    TensorData data = rank_images(2);
    trainer.prepare_data(data);
    trainer.prepare_model(small_mlp());
    for (const Batch& batch : trainer.train_batches()) {
      trainer.train_step(batch);
      if (trainer.progress().batch == 1) {
        const std::string error = error_text<std::exception>([&] { trainer.state_dict(); });
        EXPECT_EQ(error, group.rank() == 0 ? "no state" : "rank 0: cannot save the state: no state");
        callback->fails = false;
      }
    }
    trainer.finish_epoch();
    EXPECT_FALSE(trainer.state_dict().tensors.empty());
  });
}

// Saves by step and at the end of epochs, with a validation in between, and resumes from every save.
TEST(DataParallel, ResumesBitIdentically) {
  const Scratch scratch;
  const auto saving = [&](TrainerOptions& options, std::int64_t) {
    options.log_every_n_steps = 1;
    options.accumulate_grad_batches = 2;
    options.val_check_interval = 0.5;
    options.callbacks = {std::make_shared<ModelCheckpoint>(
        ModelCheckpointOptions{.dirpath = scratch / "c", .every_n_steps = 1, .keep_last = 100})};
  };
  const auto whole = run_ranks(2, saving);
  expect_replicas(whole);
  const auto checkpoints = list_checkpoints(scratch / "c");
  ASSERT_GE(checkpoints.size(), 9U);
  for (const CheckpointInfo& checkpoint : checkpoints) {
    SCOPED_TRACE(checkpoint.path.filename().string());
    const auto groups = ProcessGroup::from_threads(2, {.timeout_s = 60});
    std::vector<std::shared_ptr<Module>> models{small_mlp(), small_mlp()};
    std::vector<Metrics> metrics(2);
    on_ranks(groups, [&](ProcessGroup& group) {
      const auto rank = static_cast<std::size_t>(group.rank());
      TrainerOptions options = options_for(groups[rank]);
      options.log_every_n_steps = 1;
      options.accumulate_grad_batches = 2;
      options.val_check_interval = 0.5;
      TensorData data = rank_images(2);
      metrics[rank] = Trainer(options).fit(models[rank], data, {.resume = checkpoint.path}).metrics;
    });
    for (const auto& model : models)
      for (std::size_t i = 0; i < model->parameters().size(); ++i)
        EXPECT_TRUE(model->parameters()[i].equal(whole[0].weights()[i])) << i;
    if (checkpoint.epoch < 3) {
      EXPECT_EQ(metrics[1].at("train_loss"), whole[0].result.metrics.at("train_loss"));
    }
  }
}

TEST(DataParallel, ResumesWithAnotherNumberOfRanksAfterAnEpoch) {
  const Scratch scratch;
  const auto saving = [&](TrainerOptions& options, std::int64_t) {
    options.callbacks = {std::make_shared<ModelCheckpoint>(
        ModelCheckpointOptions{.dirpath = scratch / "c", .every_n_steps = 3, .keep_last = 100})};
  };
  const auto whole = run_ranks(2, saving);
  for (const CheckpointInfo& checkpoint : list_checkpoints(scratch / "c")) {
    const auto model = small_mlp();
    TensorData data = rank_images(1);
    Trainer alone(options_for(nullptr));
    if (checkpoint.global_step % 5 == 0) {  // steps of an epoch
      alone.fit(model, data, {.resume = checkpoint.path});
      for (std::size_t i = 0; i < model->parameters().size(); ++i)
        EXPECT_TRUE(at::allclose(model->parameters()[i], whole[0].weights()[i], 1e-6, 1e-6)) << i;
    } else {
      EXPECT_THROW(alone.fit(model, data, {.resume = checkpoint.path}), CheckpointError);
    }
  }
}

// Counts the transfers that have started when the gradient of the first layer, the last one, is ready.
TEST(DataParallel, SendsFullBucketsDuringBackward) {
  const auto groups = ProcessGroup::from_threads(2, {.timeout_s = 60});
  std::vector<int> started_before_end(2), per_step(2);
  std::vector<std::shared_ptr<Mlp>> models;
  for (int i = 0; i < 2; ++i) models.push_back(mlp({64, 600, 600}));
  on_ranks(groups, [&](ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    const auto counting = std::make_shared<CountingGroup>(groups[rank]);
    TensorData data = rank_images(2);
    const auto model = models[rank];
    TrainerOptions options{.max_epochs = 1, .step_graph = "off", .process_group = counting};
    Trainer trainer(options);
    trainer.prepare_data(data);
    trainer.prepare_model(model);
    int at_start = 0;
    model->parameters()[0].register_hook(
        [&](const at::Tensor&) { started_before_end[rank] = counting->num_started - at_start; });
    for (const Batch& batch : trainer.train_batches()) {
      at_start = counting->num_started;
      trainer.train_step(batch);
      per_step[rank] = counting->num_started - at_start;
    }
    trainer.finish_epoch();
  });
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(per_step[rank], 2);
    EXPECT_EQ(started_before_end[rank], 1);
  }
}

}  // namespace
}  // namespace kindling
