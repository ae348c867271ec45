// Where the time of a run goes: TrainerOptions::profile. Sleeping takes at least as long as requested, so the
// bounds hold on a machine of any speed.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/models/small_cnn.h"
#include "metrics/epoch_clock.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"
#include "training/inspect/operator_trace.h"
#include "training/loop/small_fit.h"
#include "training/step/point_gan.h"

namespace kindling {
namespace {

constexpr double kDoze_s = 0.02;

void doze() { std::this_thread::sleep_for(std::chrono::duration<double>(kDoze_s)); }

// Everything that can take time takes a doze: the data, the model's parts, the update, a record, a callback.
class DozyData : public TensorData {
 public:
  DozyData() : TensorData(ramp(4, 4, 2)) {}
  Batch on_after_batch_transfer(Batch batch) override {
    doze();
    return batch;
  }
};

class DozySlope : public Slope {
 public:
  at::Tensor training_step(const Batch& batch) override {
    doze();
    const at::Tensor loss = Slope::training_step(batch);
    loss.register_hook([](const at::Tensor& gradient) {
      doze();
      return gradient;
    });
    return loss;
  }
};

struct DozyCallback : Callback {
  void on_before_optimizer_step(Trainer&, Module&, Optimizer&) override { doze(); }
  void on_train_batch_end(Trainer&, Module&) override { doze(); }
};

struct DozyLogger : MemoryLogger {
  void write(const Record& record) override {
    if (record.kind == Record::Kind::step) doze();
    MemoryLogger::write(record);
  }
};

double share(const Record& record, const std::string& part) { return value_of(record, "time_share/" + part); }

void expect_shares(const Record& epoch) {
  double sum = 0;
  for (const char* part : kActivityNames) sum += share(epoch, part);
  EXPECT_NEAR(sum, 1, 1e-6);  // the rounding of seven quotients, and a nanosecond against division by zero
  // Two batches each.
  for (const char* part : kActivityNames)
    EXPECT_GE(share(epoch, part) * value_of(epoch, "epoch_time_s"), 2 * kDoze_s) << part;
}

TEST(TimeShares, CoverTheParts) {
  const auto logger = std::make_shared<DozyLogger>();
  DozyData data;
  Trainer({.max_epochs = 2,
           .num_sanity_val_steps = 0,
           .log_every_n_steps = 1,
           .profile = true,
           .optimizer = sgd(0.125),
           .callbacks = {std::make_shared<DozyCallback>()},
           .loggers = {logger}})
      .fit(std::make_shared<DozySlope>(), data);
  int num_epochs = 0;
  for (const Record& record : logger->records())
    if (record.kind == Record::Kind::epoch && ++num_epochs) expect_shares(record);
  EXPECT_EQ(num_epochs, 2);
}

TEST(TimeShares, CoverCustomLoops) {
  const auto logger = std::make_shared<DozyLogger>();
  DozyData data;
  Trainer trainer({.max_epochs = 2,
                   .log_every_n_steps = 1,
                   .profile = true,
                   .optimizer = sgd(0.125),
                   .callbacks = {std::make_shared<DozyCallback>()},
                   .loggers = {logger}});
  trainer.prepare_data(data);
  trainer.prepare_model(std::make_shared<DozySlope>());
  for (const Batch& batch : trainer.train_batches()) trainer.train_step(batch);
  trainer.finish_epoch();
  expect_shares(logger->records().back());
  // And of one that brings its batches.
  for (int i = 0; i < 2; ++i) trainer.train_step(trainer.prepare_batch({at::ones({2, 1}), at::ones({2, 1})}));
  trainer.finish_epoch();
  expect_shares(logger->records().back());
}

TEST(TimeShares, CoverSeveralOptimizers) {
  const auto logger = std::make_shared<MemoryLogger>();
  struct DozyGan : PointGan {
    at::Tensor training_step(const Batch& batch) override {
      const at::Tensor loss = update_dozily();
      return PointGan::training_step(batch) + loss.detach();
    }
    at::Tensor update_dozily() {
      const at::Tensor loss = discriminator_loss(at::ones({2, 1}), made(2));
      loss.register_hook([](const at::Tensor& gradient) {
        doze();
        return gradient;
      });
      update("discriminator", loss);
      return loss;
    }
  };
  TensorData data = gan_points();
  Trainer({.max_epochs = 1,
           .profile = true,
           .callbacks = {std::make_shared<DozyCallback>()},
           .loggers = {logger}})
      .fit(std::make_shared<DozyGan>(), data);
  const Record& epoch = logger->records().back();
  const double seconds = value_of(epoch, "epoch_time_s");
  EXPECT_GE(share(epoch, "backward") * seconds, kGanBatches * kDoze_s);
  EXPECT_GE(share(epoch, "update") * seconds, 3 * kGanBatches * kDoze_s) << "three updates in each step";
  EXPECT_GT(share(epoch, "forward"), 0);
}

TEST(TimeShares, AreOffByDefault) {
  const auto logger = std::make_shared<MemoryLogger>();
  TensorData data = ramp(4, 0, 2);
  Trainer({.max_epochs = 1, .loggers = {logger}}).fit(std::make_shared<Slope>(), data);
  EXPECT_EQ(logger->records().back().find("time_share/forward"), nullptr);
}

nlohmann::json json_of(const std::filesystem::path& file) {
  std::ifstream stream(file);
  return nlohmann::json::parse(stream);
}

std::string content_of(const std::filesystem::path& file) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

std::set<std::string> names_in(const nlohmann::json& trace) {
  std::set<std::string> names;
  for (const auto& event : trace.at("traceEvents"))
    if (event.at("ph") == "X") names.insert(event.at("name").get<std::string>());
  return names;
}

class Profile : public testing::Test {
 protected:
  TrainerOptions options() const {
    return {.max_epochs = 2, .profile = true, .optimizer = sgd(0.125), .profile_dir = scratch_ / "profile"};
  }
  // Of 8 batches an epoch.
  static void fit(TrainerOptions options, std::shared_ptr<Module> model = std::make_shared<Slope>()) {
    TensorData data = ramp(16, 2, 2);
    Trainer(std::move(options)).fit(std::move(model), data);
  }
  std::filesystem::path trace() const { return scratch_ / "profile/trace.json"; }
  std::string table() const { return content_of(scratch_ / "profile/profile.txt"); }

  const Scratch scratch_;
};

// The Trace Event Format, as Chromium's tracing page reads it.
TEST_F(Profile, TraceHasTheDocumentedFormat) {
  fit(options());
  const nlohmann::json trace = json_of(this->trace());
  std::size_t num_calls = 0;
  ASSERT_TRUE(trace.at("traceEvents").is_array());
  for (const auto& event : trace.at("traceEvents")) {
    ASSERT_TRUE(event.is_object());
    ASSERT_TRUE(event.at("ph").is_string());
    const std::string kind = event["ph"];
    EXPECT_NE(std::string("XMisfBEbeC").find(kind), std::string::npos) << event;
    EXPECT_TRUE(event.at("name").is_string()) << event;
    EXPECT_TRUE(event.contains("pid") && event.contains("tid")) << event;
    EXPECT_TRUE(event.at("ts").is_number()) << event;
    if (kind != "X") continue;
    ++num_calls;
    EXPECT_GE(event.at("dur").get<double>(), 0) << event;
    EXPECT_TRUE(event.contains("args") && event["args"].is_object()) << event;
  }
  EXPECT_GT(num_calls, 3U * 10);  // three steps of more than ten operators
}

TEST_F(Profile, HoldsTheBatchesOfItsSchedule) {
  fit(options());
  const auto names = names_in(json_of(trace()));
  for (const char* name :
       {"batch 3", "batch 4", "batch 5", "aten::mul", "forward", "backward", "update", "data"})
    EXPECT_EQ(names.count(name), 1U) << name;
  for (const char* name : {"batch 2", "batch 6", "validation"}) EXPECT_EQ(names.count(name), 0U) << name;
  EXPECT_EQ(table().find("batches 3 to 5 of the run, on cpu\n"), 0U) << table();
  EXPECT_NE(table().find("aten::mul "), std::string::npos) << table();
  EXPECT_EQ(table().find("forward "), std::string::npos) << "no operator: " << table();
}

TEST_F(Profile, CountsTheCallsOfItsSchedule) {
  auto chosen = options();
  chosen.profile_wait = 4;
  chosen.profile_warmup = 0;
  chosen.profile_active = 2;
  fit(chosen);
  EXPECT_EQ(table().find("batches 5 to 6 of"), 0U) << table();
  // Three multiplications per step, forward and backward: the slowest operators are in the table on any
  // machine.
  std::istringstream lines(table());
  std::string line, name, host;
  int num_calls = 0;
  while (std::getline(lines, line))
    if (std::istringstream words(line); words >> name >> host && name == "aten::mul") words >> num_calls;
  EXPECT_EQ(num_calls, 2 * 3) << table();
}

TEST_F(Profile, EndsWithTheEpoch) {
  auto chosen = options();
  chosen.profile_wait = 6;
  chosen.profile_active = 100;
  fit(chosen);
  EXPECT_EQ(table().find("batch 8 of"), 0U) << table();
  EXPECT_EQ(names_in(json_of(trace())).count("validation"), 0U);
  EXPECT_FALSE(torch::profiler::impl::profilerEnabled());
}

TEST_F(Profile, LeavesTrainingBitIdentical) {
  const auto trained = [&](TrainerOptions options) {
    const auto logger = std::make_shared<MemoryLogger>();
    options.max_epochs = 2;
    options.loggers = {logger};
    at::manual_seed(1);
    const auto model = std::make_shared<SmallCnn>(SmallCnnOptions{.channels = {4}, .hidden = 8});
    NoiseImages data(40, 8, 8);
    Trainer(std::move(options)).fit(model, data);
    return std::pair(state_dict(*model), numbers_of(logger->records().back()));
  };
  const auto plain = trained({}), profiled = trained({.profile = true, .profile_dir = scratch_ / "profile"});
  ASSERT_TRUE(std::filesystem::exists(trace()));
  EXPECT_EQ(plain.second, profiled.second);
  for (const auto& [name, tensor] : plain.first.tensors)
    EXPECT_TRUE(same(tensor, *profiled.first.find(name))) << name;
}

TEST_F(Profile, WorksInACustomLoop) {
  Trainer trainer(options());
  trainer.prepare_model(std::make_shared<Slope>());
  for (int i = 0; i < 4; ++i) trainer.train_step({at::ones({2, 1}), at::ones({2, 1})});
  EXPECT_FALSE(std::filesystem::exists(trace()));
  trainer.finish_epoch();
  EXPECT_EQ(table().find("batches 3 to 4 of"), 0U) << table();
  EXPECT_GT(names_in(json_of(trace())).size(), 10U);
}

TEST_F(Profile, WorksForSeveralOptimizers) {
  auto chosen = options();
  chosen.optimizer = {};
  TensorData data = gan_points();
  Trainer(std::move(chosen)).fit(std::make_shared<PointGan>(), data);
  const auto names = names_in(json_of(trace()));
  for (const char* name : {"batch 3", "forward", "backward", "update"})
    EXPECT_EQ(names.count(name), 1U) << name;
}

// Throws in its fourth step, inside of the trace.
class Failing : public Slope {
 public:
  at::Tensor training_step(const Batch& batch) override {
    if (trainer().global_step() == 3) throw std::runtime_error("on purpose");
    return Slope::training_step(batch);
  }
};

TEST_F(Profile, IsWrittenWhenTheFitFails) {
  TensorData data = ramp(16, 2, 2);
  Trainer trainer(options());
  EXPECT_THROW(trainer.fit(std::make_shared<Failing>(), data), std::runtime_error);
  EXPECT_FALSE(torch::profiler::impl::profilerEnabled());
  EXPECT_EQ(table().find("batches 3 to 4 of"), 0U) << table();
}

std::string log_of(const std::function<void()>& call) {
  std::string log;
  configure_log({.level = LogLevel::info});
  set_log_observer([&](LogLevel, const std::string& text) { log += text + "\n"; });
  call();
  set_log_observer({});
  configure_log({});
  return log;
}

TEST_F(Profile, LogsItsPathOrThatNoTraceWasWritten) {
  EXPECT_NE(log_of([&] { fit(options()); }).find("profile: batches 3 to 5 are in " + trace().string()),
            std::string::npos);
  const std::string log = log_of([&] {
    auto chosen = options();
    chosen.profile_wait = 16;
    fit(chosen);
  });
  EXPECT_NE(log.find("profile: no trace was written, because the run ended after batches 1 to 16"),
            std::string::npos)
      << log;
}

TEST_F(Profile, YieldsToAnotherProfiler) {
  using torch::autograd::profiler::disableProfiler, torch::profiler::impl::ActivityType;
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  torch::autograd::profiler::prepareProfiler(config, {ActivityType::CPU});
  torch::autograd::profiler::enableProfiler(config, {ActivityType::CPU});
  const std::string log = log_of([&] { fit(options()); });
  EXPECT_NE(log.find("another profiler is active"), std::string::npos) << log;
  EXPECT_FALSE(std::filesystem::exists(trace()));
  EXPECT_FALSE(disableProfiler()->events().empty()) << "it has seen the fit";
}

TEST_F(Profile, YieldsToAnotherTrainer) {
  OperatorTrace others{cpu()};
  ASSERT_TRUE(others.prepare());
  const std::string log = log_of([&] { fit(options()); });
  EXPECT_NE(log.find("another profiler is active"), std::string::npos) << log;
  others.start();
  at::ones({1});
  EXPECT_FALSE(others.finish(scratch_ / "others.json").empty());
}

TEST_F(Profile, NeedsAFolder) {
  std::ofstream(scratch_ / "file") << "no folder";
  auto chosen = options();
  chosen.profile_dir = scratch_ / "file/profile";
  const std::string error = error_text<Error>([&] { fit(chosen); });
  EXPECT_NE(error.find("file/profile: it cannot be created: "), std::string::npos) << error;
  EXPECT_NE(error.find("choose another profile_dir"), std::string::npos) << error;
}

TEST_F(Profile, ReportsATraceThatCannotBeWritten) {
  std::filesystem::create_directories(trace() / "in the way");
  const std::string error = error_text<Error>([&] { fit(options()); });
  EXPECT_NE(error.find("trace.json: the trace could not be written"), std::string::npos) << error;
  EXPECT_FALSE(torch::profiler::impl::profilerEnabled());
}

TEST(ProfileOptions, AreChecked) {
  const auto error = [](const TrainerOptions& options) {
    return error_text<ConfigError>([&] { Trainer{options}; });
  };
  EXPECT_NE(error({.profile_active = 0}).find("profile_active is 0; expected: an integer >= 1 and <= 1000"),
            std::string::npos)
      << error({.profile_active = 0});
  EXPECT_NE(error({.profile_wait = -1}).find("profile_wait"), std::string::npos);
}

}  // namespace
}  // namespace kindling
