// What the field list decides about a trainer's options: on resume, across ranks, in trial fits.
#include "kindling/training/trainer_fields.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "config/option_checks.h"
#include "kindling/base/error.h"
#include "kindling/data/data_module.h"
#include "support/rank_threads.h"
#include "training/loop/small_fit.h"
#include "training/parallel/replicas.h"
#include "training/tuner/trial_fit.h"

namespace kindling {
namespace {

using OnResume = OptionPolicy::OnResume;
using AcrossRanks = OptionPolicy::AcrossRanks;
using InTrials = OptionPolicy::InTrials;

std::map<std::string, OptionRef> options_by_name(TrainerOptions& options) {
  std::map<std::string, OptionRef> named;
  const OptionSet set = OptionSet::of(options);
  for (const OptionRef& option : set.refs()) named.emplace(option.name, option);
  return named;
}

// One letter for each decision other than fixed, may_differ and kept.
std::string decisions_of(const OptionPolicy& policy) {
  std::string letters;
  if (policy.on_resume == OnResume::may_change) letters += 'C';
  if (policy.across_ranks == AcrossRanks::must_agree) letters += 'A';
  if (policy.in_trials == InTrials::reset) letters += 'R';
  return letters;
}

TEST(TrainerFields, DecideEveryOption) {
  TrainerOptions options;
  for (const auto& [name, option] : options_by_name(options))
    EXPECT_TRUE(option.notes.policy.is_decided())
        << name << " has an undecided policy: decide all three in kindling/training/trainer_fields.h";
}

// A new member breaks the binding: give it a field with a policy, or add it to those that no config can set.
TEST(TrainerFields, ListEveryMemberThatAConfigCanSet) {
  constexpr std::size_t kNotInTrainer = 9;  // on_spike, optimizer, schedule and its interval, callbacks,
                                            // loggers, process_group, nonfinite_dir, profile_dir
  TrainerOptions options;
  auto& [a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, c0, c1, c2, c3, c4,
         c5, c6, c7, c8, c9, d0, d1, d2, d3, d4, d5, d6, d7, d8, d9, e0, e1, e2, e3, e4, e5, e6, e7, e8] =
      options;
  EXPECT_EQ(options_by_name(options).size() + kNotInTrainer, 49U);
  EXPECT_EQ(&a0, &options.max_epochs);
  EXPECT_EQ(&e1, &options.optimizer);
  EXPECT_EQ(&e8, &options.profile_dir);
}

TEST(TrainerFields, KeepTheseDecisions) {
  const std::map<std::string, std::string> expected{{"accumulate_grad_batches", "A"},
                                                    {"channels_last", "A"},
                                                    {"check_val_every_n_epoch", "AR"},
                                                    {"detect_anomaly", ""},
                                                    {"deterministic", ""},
                                                    {"fast_dev_run", "AR"},
                                                    {"float32_matmul_precision", "A"},
                                                    {"gradient_clip_algorithm", "A"},
                                                    {"gradient_clip_val", "A"},
                                                    {"gradient_shards", "A"},
                                                    {"limit_predict_batches", "C"},
                                                    {"limit_test_batches", "CA"},
                                                    {"limit_train_batches", "A"},
                                                    {"limit_val_batches", "AR"},
                                                    {"log_every_n_steps", "CR"},
                                                    {"master_weights", "A"},
                                                    {"max_epochs", "CAR"},
                                                    {"max_steps", "CAR"},
                                                    {"max_time", "CR"},
                                                    {"min_epochs", "CAR"},
                                                    {"min_steps", "CAR"},
                                                    {"num_gpus", "C"},
                                                    {"num_processes", ""},
                                                    {"num_sanity_val_steps", "AR"},
                                                    {"num_threads", "C"},
                                                    {"on_nonfinite", "AR"},
                                                    {"overfit_batches", "A"},
                                                    {"precision", "A"},
                                                    {"profile", ""},
                                                    {"profile_active", ""},
                                                    {"profile_wait", ""},
                                                    {"profile_warmup", ""},
                                                    {"recheck_every_n_steps", "CAR"},
                                                    {"require_gpus", "C"},
                                                    {"shard_optimizer_state", "CA"},
                                                    {"step_graph", "C"},
                                                    {"step_kernels", "C"},
                                                    {"sync_batchnorm", "A"},
                                                    {"track_grad_norm", "A"},
                                                    {"val_check_interval", "AR"}};
  TrainerOptions options;
  std::map<std::string, std::string> decisions;
  for (const auto& [name, option] : options_by_name(options))
    decisions[name] = decisions_of(option.notes.policy);
  EXPECT_EQ(decisions, expected);
}

TEST(DataOptions, MayChangeOnResumeOnlyWhereBatchesStayTheSame) {
  DataOptions options;
  const OptionSet set = OptionSet::of(options);
  for (const OptionRef& option : set.refs())
    EXPECT_EQ(option.notes.policy.on_resume == OnResume::may_change,
              option.name == "resident" || option.name == "num_workers")
        << option.name;
}

// Every option of a config has another value than by default.
TrainerOptions unusual_options() {
  return {.max_epochs = 5,
          .num_gpus = -1,
          .gradient_clip_val = 0.25,
          .gradient_clip_algorithm = "value",
          .max_steps = 100,
          .max_time = "00:01:00:00",
          .min_epochs = 2,
          .min_steps = 3,
          .accumulate_grad_batches = 2,
          .gradient_shards = 4,
          .sync_batchnorm = true,
          .shard_optimizer_state = true,
          .precision = "bf16-true",
          .master_weights = true,
          .float32_matmul_precision = "high",
          .channels_last = "on",
          .step_graph = "off",
          .step_kernels = "off",
          .require_gpus = true,  // otherwise a trial takes only the first of the GPUs that exist
          .num_processes = 2,
          .limit_train_batches = 6,
          .limit_val_batches = 7,
          .limit_test_batches = 8,
          .limit_predict_batches = 9,
          .fast_dev_run = true,
          .overfit_batches = 0.5,
          .val_check_interval = 0.5,
          .check_val_every_n_epoch = 2,
          .num_sanity_val_steps = 4,
          .log_every_n_steps = 5,
          .num_threads = 2,
          .on_nonfinite = "skip",
          .on_spike = SpikeOptions{},
          .track_grad_norm = 2,
          .detect_anomaly = true,
          .recheck_every_n_steps = 6,
          .deterministic = "warn",
          .profile = true,
          .profile_wait = 2,
          .profile_warmup = 2,
          .profile_active = 4,
          .schedule = [](const SchedulePoint&) { return 1.0; },
          .callbacks = {std::make_shared<Callback>()},
          .loggers = {nullptr},
          .nonfinite_dir = "somewhere",
          .profile_dir = "somewhere"};
}

bool equal(const OptionRef& a, const OptionRef& b) {
  return std::visit([&]<class Value>(Value* value) { return *value == *std::get<Value*>(b.value); }, a.value);
}

TEST(TrialOptions, KeepTheOptionsThatTheirPolicyKeeps) {
  TrainerOptions plain, unusual = unusual_options(), trial = trial_options(unusual, 11);
  const auto defaults = options_by_name(plain), requested = options_by_name(unusual);
  for (const auto& [name, option] : options_by_name(trial)) {
    EXPECT_FALSE(equal(requested.at(name), defaults.at(name))) << name;
    EXPECT_EQ(equal(option, requested.at(name)), option.notes.policy.in_trials == InTrials::kept) << name;
  }
  EXPECT_EQ(trial.profile_dir, "somewhere");
}

TEST(TrialOptions, ResetTheOptionsThatEndWatchAndValidateTheFit) {
  const TrainerOptions trial = trial_options(unusual_options(), 11);
  EXPECT_EQ(trial.max_epochs, std::nullopt);
  EXPECT_EQ(trial.max_steps, 11);
  EXPECT_EQ(trial.max_time, "");
  EXPECT_EQ(trial.min_epochs, 0);
  EXPECT_EQ(trial.min_steps, 0);
  EXPECT_FALSE(trial.fast_dev_run);
  EXPECT_EQ(trial.limit_val_batches, 0);
  EXPECT_EQ(trial.num_sanity_val_steps, 0);
  EXPECT_EQ(trial.val_check_interval, CountOrFraction(1.0));
  EXPECT_EQ(trial.check_val_every_n_epoch, 1);
  EXPECT_EQ(trial.log_every_n_steps, 0);
  EXPECT_EQ(trial.on_nonfinite, "ignore");
  EXPECT_FALSE(trial.on_spike);
  EXPECT_TRUE(trial.nonfinite_dir.empty());
  EXPECT_FALSE(trial.schedule);
  EXPECT_TRUE(trial.callbacks.empty());
  EXPECT_TRUE(trial.loggers.empty());
}

TEST(PublicOptions, ShowTheRequestedNumberOfBatchesPerStep) {
  const TrainerOptions requested{.max_epochs = 5, .accumulate_grad_batches = 3, .gradient_shards = 4};
  EXPECT_EQ(Trainer(requested).options().accumulate_grad_batches, 3);
}

TEST(PublicOptions, ShowWhatAFastDevRunMakesOfTheOthers) {
  const TrainerOptions shown =
      Trainer({.max_epochs = 5, .fast_dev_run = true, .num_sanity_val_steps = 2}).options();
  EXPECT_EQ(shown.max_epochs, 1);
  EXPECT_EQ(shown.max_steps, 1);
  EXPECT_EQ(shown.num_sanity_val_steps, 0);
}

// Errors of two ranks, of which the second has changed its options; empty: none.
std::vector<std::string> errors_with(const std::function<void(TrainerOptions&)>& change) {
  std::vector<std::string> errors(2);
  on_ranks(2, [&](ProcessGroup& group) {
    TrainerOptions options{.max_epochs = 1};
    if (group.rank() == 1) change(options);
    const auto model = std::make_shared<Slope>();
    try {
      sync_initial_state(group, *model, options);
    } catch (const DistributedError& error) {
      errors[static_cast<std::size_t>(group.rank())] = error.what();
    }
  });
  return errors;
}

struct OptionChange {
  const char* name;
  void (*change)(TrainerOptions&);
  const char *first, *second;  // the values of the ranks, as the error shows them
};

constexpr OptionChange kRefusedAcrossRanks[] = {
    {"max_epochs", [](TrainerOptions& o) { o.max_epochs = 2; }, "'1'", "'2'"},
    {"max_steps", [](TrainerOptions& o) { o.max_steps = 2; }, "nothing", "'2'"},
    {"gradient_clip_val", [](TrainerOptions& o) { o.gradient_clip_val = 0.5; }, "'0'", "'0.5'"},
    {"gradient_clip_algorithm", [](TrainerOptions& o) { o.gradient_clip_algorithm = "value"; }, "'norm'",
     "'value'"},
    {"accumulate_grad_batches", [](TrainerOptions& o) { o.accumulate_grad_batches = 2; }, "'1'", "'2'"},
    {"gradient_shards", [](TrainerOptions& o) { o.gradient_shards = 2; }, "'1'", "'2'"},
    {"shard_optimizer_state", [](TrainerOptions& o) { o.shard_optimizer_state = true; }, "'false'", "'true'"},
    {"sync_batchnorm", [](TrainerOptions& o) { o.sync_batchnorm = true; }, "'false'", "'true'"},
    {"precision", [](TrainerOptions& o) { o.precision = "bf16-true"; }, "'32-true'", "'bf16-true'"},
    {"master_weights", [](TrainerOptions& o) { o.master_weights = true; }, "'false'", "'true'"},
    {"float32_matmul_precision", [](TrainerOptions& o) { o.float32_matmul_precision = "high"; }, "nothing",
     "'high'"},
    {"on_nonfinite", [](TrainerOptions& o) { o.on_nonfinite = "skip"; }, "'stop'", "'skip'"},
    {"on_spike.factor", [](TrainerOptions& o) { o.on_spike.emplace(); }, "nothing", "'4'"},
    {"check_val_every_n_epoch", [](TrainerOptions& o) { o.check_val_every_n_epoch = 2; }, "'1'", "'2'"},
    {"num_sanity_val_steps", [](TrainerOptions& o) { o.num_sanity_val_steps = 0; }, "'2'", "'0'"},
    {"fast_dev_run", [](TrainerOptions& o) { o.fast_dev_run = true; }, "'false'", "'true'"},
    {"min_epochs", [](TrainerOptions& o) { o.min_epochs = 2; }, "'0'", "'2'"},
    {"min_steps", [](TrainerOptions& o) { o.min_steps = 2; }, "'0'", "'2'"},
    {"val_check_interval", [](TrainerOptions& o) { o.val_check_interval = 4; }, "'1.0'", "'4'"},
    {"overfit_batches", [](TrainerOptions& o) { o.overfit_batches = 2; }, "nothing", "'2'"},
    {"limit_train_batches", [](TrainerOptions& o) { o.limit_train_batches = 2; }, "nothing", "'2'"},
    {"limit_val_batches", [](TrainerOptions& o) { o.limit_val_batches = 2; }, "nothing", "'2'"},
    {"limit_test_batches", [](TrainerOptions& o) { o.limit_test_batches = 2; }, "nothing", "'2'"},
    {"channels_last", [](TrainerOptions& o) { o.channels_last = "on"; }, "'off'", "'on'"},
    {"track_grad_norm", [](TrainerOptions& o) { o.track_grad_norm = 2; }, "'0'", "'2'"},
    {"recheck_every_n_steps", [](TrainerOptions& o) { o.recheck_every_n_steps = 2; }, "'0'", "'2'"},
    {"the number of callbacks", [](TrainerOptions& o) { o.callbacks = {std::make_shared<Callback>()}; },
     "'0'", "'1'"}};

TEST(Ranks, MustAgreeOnTheOptionsThatDetermineTheSteps) {
  TrainerOptions options;
  std::size_t num_agreed = 0;
  for (const auto& [name, option] : options_by_name(options))
    num_agreed += option.notes.policy.across_ranks == AcrossRanks::must_agree;
  EXPECT_EQ(num_agreed + 2, std::size(kRefusedAcrossRanks));  // and on_spike and the number of callbacks
  for (const OptionChange& refused : kRefusedAcrossRanks)
    for (const std::string& error : errors_with(refused.change)) {
      EXPECT_NE(error.find(refused.name), std::string::npos) << refused.name << ": " << error;
      EXPECT_NE(error.find(refused.first), std::string::npos) << error;
      EXPECT_NE(error.find(refused.second), std::string::npos) << error;
    }
}

TEST(Ranks, MayDifferInAllOtherOptions) {
  const auto errors = errors_with([](TrainerOptions& options) {
    TrainerOptions agreed = std::exchange(options, unusual_options());
    options.callbacks.clear();
    options.on_spike.reset();
    copy_options_if(options, agreed, [](const OptionPolicy& policy) {
      return policy.across_ranks == AcrossRanks::must_agree;
    });
  });
  EXPECT_EQ(errors, (std::vector<std::string>{"", ""}));
}

}  // namespace
}  // namespace kindling
