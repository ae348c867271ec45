// Data-parallel fits: how the ranks are launched, which files they write, how they end.
#include "cli/run/fit_processes.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "cli/commands/process.h"
#include "cli/run/same_run.h"
#include "support/scratch.h"

namespace kindling {
namespace {

using Words = std::vector<std::string>;
using VariableMap = std::map<std::string, std::string>;

// Environment variables of this process and of those that it starts meanwhile.
class SetVariables {
 public:
  explicit SetVariables(VariableMap variables) : variables_(std::move(variables)) {
    for (const auto& [name, value] : variables_) ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~SetVariables() {
    for (const auto& [name, value] : variables_) ::unsetenv(name.c_str());
  }

 private:
  VariableMap variables_;
};

// A free port, which the system does not assign again soon.
std::string free_port() {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ::bind(listener, reinterpret_cast<const sockaddr*>(&address), size);
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(listener);
  return std::to_string(::ntohs(address.sin_port));
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

class FitProcesses : public testing::Test {
 protected:
  FitProcesses() { write_small_cnn(scratch_ / "small.toml", "every_n_epochs = 0"); }

  Words fit(const Words& more = {}) const {
    Words words{"fit",
                "-c",
                (scratch_ / "small.toml").string(),
                "--run.dir",
                (scratch_ / "runs").string(),
                "trainer.num_processes=2"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::filesystem::path run() const { return scratch_ / "runs/small/0001"; }
  std::filesystem::path output() const { return scratch_ / "output.txt"; }
  std::string said() const { return text_of(output()); }
  nlohmann::json summary() const { return nlohmann::json::parse(text_of(run() / "run.json")); }
  bool has_run() const { return std::filesystem::exists(run()); }
  std::int64_t num_lines(const char* file) const {
    return static_cast<std::int64_t>(count_of(text_of(run() / file), "\n"));
  }
  void wait_for_training(Process& process) const {
    process.wait_until([&] { return said().find("total ") != std::string::npos; });
  }

  const Scratch scratch_;
};

TEST_F(FitProcesses, WriteOneRunAndALogPerRank) {
  ASSERT_EQ(run_process(fit({"trainer.max_epochs=2"}), output()), 0) << said();
  EXPECT_EQ(count_of(said(), "done in "), 1u) << said();
  EXPECT_EQ(count_of(said(), "config   small.toml"), 1u) << said();
  EXPECT_EQ(summary()["status"], "finished");
  EXPECT_EQ(summary()["processes"], 2);
  EXPECT_EQ(num_lines("command.txt"), 1);
  std::set<std::int64_t> epochs;
  for (const auto& record : records_of(run()))
    if (!record.contains("train_loss_step")) {
      EXPECT_TRUE(epochs.insert(record["epoch"].get<std::int64_t>()).second);
    }
  EXPECT_EQ(epochs, (std::set<std::int64_t>{1, 2}));
  EXPECT_NE(text_of(run() / "config.toml").find("\nnum_processes = 2 "), std::string::npos);
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(run())) {
    const std::string name = entry.path().filename();
    files.insert(name.substr(0, name.find(".tfevents.")));
  }
  EXPECT_EQ(files, (std::set<std::string>{".lock", "calibration.csv", "checkpoints", "command.txt",
                                          "config.toml", "confusion_matrix.csv", "curves.svg", "events.out",
                                          "log.rank1.txt", "log.txt", "metrics.csv", "metrics.jsonl",
                                          "model.csv", "report.html", "run.json", "weights.safetensors",
                                          "worst_pictures.npy", "worst_predictions.csv"}));
  for (const char* log : {"log.txt", "log.rank1.txt"})
    EXPECT_NE(text_of(run() / log).find(" epoch 2, step "), std::string::npos) << log;
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "runs/small/0002"));
}

// However often rank 0 says that it continues.
TEST(SoloWorks, EndWithTheLargestNumberOfAllRanks) {
  for (const int num_batches : {0, 3}) {
    const auto groups = ProcessGroup::from_threads(3);
    std::vector<int> results(3);
    const auto take_part = [&](std::size_t rank) {
      SoloWork work(groups[rank], /*interval_s=*/0);
      for (int i = 0; rank == 0 && i < num_batches; ++i) work.keep_waiting();
      results[rank] = work.largest(rank == 2 ? 130 : 0);
    };
    std::vector<std::thread> others;
    for (const std::size_t rank : {1, 2}) others.emplace_back(take_part, rank);
    take_part(0);
    for (std::thread& other : others) other.join();
    EXPECT_EQ(results, (std::vector<int>{130, 130, 130}));
  }
  SoloWork alone(nullptr);
  alone.keep_waiting();
  EXPECT_EQ(alone.largest(2), 2);
}

// A GPU for each of two ranks, or the CPU for both.
TEST_F(FitProcesses, WithoutNumGpusChooseTheDeviceSilently) {
  const bool has_gpus = num_gpus() >= 2;
  const auto expect_silent = [&] {
    EXPECT_EQ(summary()["device"], has_gpus ? "cuda:0" : "cpu");
    EXPECT_EQ(summary()["processes"], 2);
    EXPECT_EQ(summary().value("device_note", ""), "");
    EXPECT_EQ(said().find("warning"), std::string::npos) << said();
    for (const char* log : {"log.txt", "log.rank1.txt"})
      EXPECT_EQ(text_of(run() / log).find("warning"), std::string::npos) << text_of(run() / log);
    EXPECT_NE(text_of(run() / "config.toml").find("\n# num_gpus = "), std::string::npos);
  };
  ASSERT_EQ(run_process(fit({"trainer.max_epochs=1"}), output()), 0) << said();
  expect_silent();
  ASSERT_EQ(run_process({"fit", "--resume", run().string(), "trainer.max_epochs=2"}, output()), 0) << said();
  expect_silent();
  EXPECT_EQ(records_of(run()).back()["epoch"], 2);
}

TEST_F(FitProcesses, ResumeTogether) {
  ASSERT_EQ(run_process(fit({"trainer.max_epochs=1"}), output()), 0) << said();
  const Words resume{"fit", "--resume", run().string()};
  ASSERT_EQ(run_process(resume, output()), 0) << said();
  EXPECT_NE(said().find("is finished"), std::string::npos) << said();
  EXPECT_EQ(num_lines("command.txt"), 1);
  Words longer = resume;
  longer.push_back("trainer.max_epochs=2");
  ASSERT_EQ(run_process(longer, output()), 0) << said();
  EXPECT_EQ(num_lines("command.txt"), 2);
  EXPECT_EQ(summary()["processes"], 2);
  EXPECT_EQ(records_of(run()).back()["epoch"], 2);
  for (const char* log : {"log.txt", "log.rank1.txt"})
    EXPECT_NE(text_of(run() / log).find("resume: after step "), std::string::npos) << log;
  Words fewer = longer;
  fewer.push_back("trainer.num_processes=1");
  EXPECT_EQ(run_process(fewer, output()), 2);
  EXPECT_NE(said().find("trainer.num_processes: was 2, now 1"), std::string::npos) << said();
}

TEST(NumToStart, IsOnePerGpuByDefault) {
  const auto number = [](std::int64_t num_processes, std::int64_t num_gpus, std::int64_t num_available) {
    return num_to_start({.num_gpus = num_gpus, .num_processes = num_processes}, num_available);
  };
  EXPECT_EQ(number(1, 0, 4), 1);
  EXPECT_EQ(number(1, 1, 4), 1);
  EXPECT_EQ(number(1, 2, 4), 2);
  EXPECT_EQ(number(1, -1, 4), 4);
  EXPECT_EQ(number(1, 2, 1), 1);  // a single process reports that a GPU is missing
  EXPECT_EQ(number(1, -1, 0), 1);
  EXPECT_EQ(number(3, 2, 2), 3);
  EXPECT_EQ(number(3, 0, 4), 3);
}

class FitLaunched : public FitProcesses, public testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(TellingLocalRanks, FitLaunched, testing::Bool());

// If local ranks are given without their number, rank 1 knows that both are on one machine, and rank 0 does
// not.
TEST_P(FitLaunched, ByOtherLaunchers) {
  const std::string port = free_port();
  const Words words = fit({"trainer.max_epochs=1", "trainer.num_processes=1"});
  std::vector<std::unique_ptr<Process>> processes;
  for (const char* rank : {"0", "1"}) {
    const SetVariables variables(
        {{"RANK", rank}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}});
    const SetVariables more(GetParam() ? VariableMap{{"LOCAL_RANK", rank}} : VariableMap{});
    processes.push_back(std::make_unique<Process>(words, scratch_ / ("output" + std::string(rank))));
  }
  EXPECT_EQ(processes[0]->wait(), 0) << text_of(scratch_ / "output0");
  EXPECT_EQ(processes[1]->wait(), 0) << text_of(scratch_ / "output1");
  EXPECT_EQ(summary()["processes"], 2);
  EXPECT_NE(text_of(scratch_ / "output0").find("done in "), std::string::npos);
  EXPECT_EQ(text_of(scratch_ / "output1"), "");
  EXPECT_TRUE(std::filesystem::exists(run() / "log.rank1.txt"));
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "runs/small/0002"));
}

TEST_F(FitProcesses, ReportThatTheyWaitForOthers) {
  const std::string port = free_port();
  const Words words = fit({"distributed.timeout_s=1", "trainer.num_processes=1"});
  for (const auto& [rank, other] : {std::pair("0", "other ranks"), std::pair("1", "rank 0")}) {
    const SetVariables variables(
        {{"RANK", rank}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}});
    EXPECT_EQ(Process(words, output()).wait(), 1);
    EXPECT_NE(said().find(std::string("rank ") + rank + " of 2 (RANK and WORLD_SIZE) still waits for " +
                          other + " after 0.5 s; all ranks must run this program"),
              std::string::npos)
        << said();
  }
}

TEST_F(FitProcesses, RefuseConfigsThatDiffer) {
  const std::string port = free_port();
  std::vector<std::unique_ptr<Process>> processes;
  for (const char* rank : {"0", "1"}) {
    const SetVariables variables(
        {{"RANK", rank}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}});
    const Words words = fit({"trainer.num_processes=1", "trainer.log_every_n_steps=" + std::string(rank),
                             "checkpoint.every_n_steps=1" + std::string(rank)});
    processes.push_back(std::make_unique<Process>(words, scratch_ / ("output" + std::string(rank))));
  }
  for (const std::size_t rank : {0, 1}) {
    EXPECT_EQ(processes[rank]->wait(), 1);
    const std::string said = text_of(scratch_ / ("output" + std::to_string(rank)));
    EXPECT_NE(said.find("checkpoint.every_n_steps is '11' on rank 1 and '10' on rank 0"), std::string::npos)
        << said;
  }
  EXPECT_FALSE(has_run());
}

TEST_F(FitProcesses, ReportConfigErrorsOnceBeforeTheRun) {
  const auto expect_refusal = [&](const VariableMap& set, const Words& more, const std::string& text) {
    const SetVariables variables(set);
    EXPECT_EQ(run_process(fit(more), output()), 2);
    EXPECT_EQ(count_of(said(), text), 1u) << text << "\n" << said();
    EXPECT_EQ(count_of(said(), "\n"), 1u) << said();
    EXPECT_FALSE(has_run());
  };
  expect_refusal(
      {{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}}, {},
      "trainer.num_processes: it is 2, but according to RANK and WORLD_SIZE there are 4 processes");
  expect_refusal({{"RANK", "0"}}, {}, "environment variable WORLD_SIZE: it is not set, but RANK is");
  expect_refusal({}, {"lr_finder.num_training_steps=50"}, "lr_finder: searches run in a single process");
  expect_refusal({}, {"batch_finder.max_trials=2"}, "batch_finder: searches run in a single process");
}

TEST_F(FitProcesses, ExitWithTheCodeOfTheError) {
  write_text(scratch_ / "mnist.toml",
             "[model]\nname = \"lenet\"\n[data]\nname = \"mnist\"\nroot = \"" + (scratch_ / "none").string() +
                 "\"\n[trainer]\nmax_epochs = 1\nnum_processes = 2\n[distributed]\nmax_restarts = 2\n");
  EXPECT_EQ(run_process(
                {"fit", "-c", (scratch_ / "mnist.toml").string(), "--run.dir", (scratch_ / "runs").string()},
                output()),
            3)
      << said();
  EXPECT_EQ(count_of(said(), "restart"), 0u) << said();
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "runs"));
}

TEST_F(FitProcesses, OtherCommandsUseOneProcess) {
  ASSERT_EQ(run_process(fit({"trainer.max_epochs=1"}), output()), 0) << said();
  Words words = fit();
  words[0] = "validate";
  words.insert(words.begin() + 1, {"--weights", run().string()});
  EXPECT_EQ(run_process(words, output()), 0) << said();
  EXPECT_EQ(count_of(said(), "val_acc "), 1u) << said();
}

TEST_F(FitProcesses, StopOnASignalAndResume) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const std::filesystem::path dir = scratch_ / ("signal" + std::to_string(signal));
    Process process(
        fit({"trainer.max_epochs=1000000", "distributed.max_restarts=2", "--run.dir", dir.string()}),
        output());
    wait_for_training(process);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    // systemd and scancel signal the ranks, too, and SLURM does so twice at a time limit.
    if (signal != SIGINT)
      for (const pid_t rank : children_of(process.id())) ::kill(rank, signal);
    process.send(signal);
    if (signal == SIGTERM)
      for (const pid_t rank : children_of(process.id())) ::kill(rank, signal);
    EXPECT_EQ(process.wait(), 128 + signal) << said();
    const auto summary = nlohmann::json::parse(text_of(dir / "small/0001/run.json"));
    EXPECT_EQ(summary["status"], "stopped");
    EXPECT_EQ(summary["global_step"],
              newest_valid_checkpoint(dir / "small/0001/checkpoints").value().global_step);
    EXPECT_EQ(count_of(said(), "resume with   kindling fit --resume "), 1u) << said();
  }
}

TEST_F(FitProcesses, EndAsDocumentedWheneverASignalComes) {
  const char* set = std::getenv("KINDLING_SOAK_SIGNALS");
  const int num_moments = set == nullptr ? 1 : std::atoi(set);
  std::mt19937 random(12);
  for (const int signal : {SIGUSR1, SIGPIPE, SIGXFSZ, SIGHUP, SIGINT, SIGTERM})
    for (int i = 0; i < num_moments && !HasFailure(); ++i) {
      const int delay_ms = static_cast<int>(random() % 1500);
      SCOPED_TRACE(std::to_string(signal) + " after " + std::to_string(delay_ms) + " ms");
      const std::filesystem::path dir = scratch_ / (std::to_string(signal) + "-" + std::to_string(i));
      Process process(fit({"trainer.max_epochs=2", "--run.dir", dir.string()}), output());
      process.wait_until([&] { return survives_early_signals(process.id()); });
      std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
      process.send(signal);
      const int exit_code = process.wait();
      const bool is_stop = signal == SIGHUP || signal == SIGINT || signal == SIGTERM;
      EXPECT_TRUE(exit_code == 0 || (is_stop && exit_code == 128 + signal)) << exit_code << said();
      const std::filesystem::path summary = dir / "small/0001/run.json";
      if (std::filesystem::exists(summary)) {
        EXPECT_NE(nlohmann::json::parse(text_of(summary))["status"], "running");
      }
    }
}

// Immediately, not at the end of the epoch, which has 719 steps.
TEST_F(FitProcesses, SaveOnRequestAndContinue) {
  Process process(fit({"trainer.max_epochs=1000000", "data.batch_size=1"}), output());
  wait_for_training(process);
  const auto has_checkpoint = [&] {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(run() / "checkpoints", ignored))
      if (entry.path().filename().string().starts_with("step-")) return true;
    return false;
  };
  process.send(SIGUSR1);
  process.wait_until(has_checkpoint);
  EXPECT_TRUE(process.is_running()) << said();
  EXPECT_LT(newest_valid_checkpoint(run() / "checkpoints").value().global_step, 719);
  process.send(SIGTERM);
  EXPECT_EQ(process.wait(), 143) << said();
}

TEST_F(FitProcesses, LogWarningsOnce) {
  ASSERT_EQ(run_process(fit({"trainer.max_epochs=2", "checkpoint.every_n_epochs=1"}), output()), 0) << said();
  std::filesystem::resize_file(newest_valid_checkpoint(run() / "checkpoints").value().path, 100);
  std::filesystem::copy(run(), scratch_ / "copy", std::filesystem::copy_options::recursive);
  const auto num_warnings = [&](const std::filesystem::path& of, const std::string& num_processes) {
    const Words words{"fit",
                      "--resume",
                      of.string(),
                      "--allow-config-change",
                      "trainer.max_epochs=3",
                      "trainer.num_processes=" + num_processes};
    EXPECT_EQ(run_process(words, output()), 0) << said();
    return count_of(said(), "warning: a file is not a checkpoint");
  };
  const std::size_t of_one = num_warnings(scratch_ / "copy", "1");
  EXPECT_GT(of_one, 0u);
  EXPECT_EQ(num_warnings(run(), "2"), of_one) << said();
}

// A signal that reaches one rank stops all.
TEST_F(FitProcesses, StopTogether) {
  Process process(fit({"trainer.max_epochs=1000000", "distributed.max_restarts=2"}), output());
  wait_for_training(process);
  const std::vector<pid_t> children = children_of(process.id());
  ASSERT_EQ(children.size(), 2u);
  ::kill(children[1], SIGINT);
  EXPECT_EQ(process.wait(), 130) << said();
  EXPECT_EQ(summary()["status"], "stopped");
  EXPECT_EQ(count_of(said(), "resume with   kindling fit --resume "), 1u) << said();
}

TEST_F(FitProcesses, EndSoonAfterOneIsKilled) {
  for (const std::size_t victim : {0, 1}) {
    const std::filesystem::path dir = scratch_ / ("victim" + std::to_string(victim));
    Process process(fit({"trainer.max_epochs=1000000", "--run.dir", dir.string()}), output());
    wait_for_training(process);
    const std::vector<pid_t> children = children_of(process.id());
    ASSERT_EQ(children.size(), 2u);
    const auto start = std::chrono::steady_clock::now();
    ::kill(children[victim], SIGKILL);
    EXPECT_EQ(process.wait(), 128 + SIGKILL) << said();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
    EXPECT_NE(said().find("process " + std::to_string(victim) + " of 2 was ended by signal 9"),
              std::string::npos)
        << said();
    for (const pid_t child : children) EXPECT_EQ(::kill(child, 0), -1) << child;
  }
}

}  // namespace
}  // namespace kindling
