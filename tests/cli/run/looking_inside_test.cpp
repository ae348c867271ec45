// The inspection options of a training, from a config.
#include <nlohmann/json.hpp>

#include "cli/commands/program_run.h"
#include "support/scratch.h"

namespace kindling {
namespace {

class LookingInside : public testing::Test {
 protected:
  ProgramRun fit(const std::string& trainer, std::vector<std::string> more = {}) {
    write_text(scratch_ / "own.toml",
               "[model]\nname = \"mlp\"\nhidden = [8]\n[data]\nname = \"digits\"\n[trainer]\nmax_epochs = 1\n"
               "limit_train_batches = 8\n" +
                   trainer);
    std::vector<std::string> words{"fit", "-c", (scratch_ / "own.toml").string(),
                                   "run.dir=" + (scratch_ / "runs").string()};
    words.insert(words.end(), more.begin(), more.end());
    return run_program(words);
  }
  nlohmann::json last_record() const {
    std::istringstream lines(text_of(run_folder_ / "metrics.jsonl"));
    std::string line, last;
    while (std::getline(lines, line)) last = line;
    return nlohmann::json::parse(last);
  }

  const Scratch scratch_;
  const std::filesystem::path run_folder_ = scratch_ / "runs/own/0001";
};

TEST_F(LookingInside, ProfileIsInTheRunDirectory) {
  const ProgramRun run = fit("profile = true\nprofile_active = 2\n");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.err, "") << "the terminal is for the table";
  const auto trace = nlohmann::json::parse(text_of(run_folder_ / "trace.json"));
  EXPECT_GT(trace.at("traceEvents").size(), 100U);  // two steps of a few dozen operators
  EXPECT_EQ(text_of(run_folder_ / "profile.txt").find("batches 3 to 4 of the run, on cpu"), 0U);
  EXPECT_NE(text_of(run_folder_ / "log.txt").find("profile: batches 3 to 4 are in "), std::string::npos);
  double sum = 0;
  const nlohmann::json record = last_record();
  for (const auto& [name, value] : record.items())
    if (name.starts_with("time_share/")) sum += value.get<double>();
  EXPECT_NEAR(sum, 1, 1e-6);  // the rounding of seven numbers
  EXPECT_EQ(run.out.find("time_share"), std::string::npos) << "for the files, not for the eye: " << run.out;
}

TEST_F(LookingInside, NormsAreInTheMetrics) {
  const ProgramRun run = fit("track_grad_norm = 2\n");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const nlohmann::json record = last_record();
  int num_norms = 0;
  for (const auto& [name, value] : record.items())
    num_norms += name.starts_with("grad_norm/") && value.get<double>() > 0 ? 1 : 0;
  EXPECT_EQ(num_norms, 4) << record;  // two layers
  EXPECT_EQ(run.out.find("grad_norm"), std::string::npos) << run.out;
}

TEST_F(LookingInside, KeysAreShownWithTheirDefaults) {
  const std::string printed = fit("", {"--print-config"}).out;
  for (const char* line : {"track_grad_norm = 0.0", "detect_anomaly = false", "deterministic = \"false\"",
                           "profile = false", "profile_wait = 1", "profile_warmup = 1", "profile_active = 3"})
    EXPECT_NE(printed.find(line), std::string::npos) << line << "\n" << printed;
}

TEST_F(LookingInside, Float32PrecisionIsInTheConfigAndTheSummary) {
  const auto word_of_run = [&] {
    return nlohmann::json::parse(text_of(run_folder_ / "run.json"))["float32_matmul_precision"];
  };
  EXPECT_NE(fit("", {"--print-config"}).out.find("# float32_matmul_precision = "), std::string::npos);
  const std::string line = "float32_matmul_precision = \"medium\"\n";
  EXPECT_NE(fit(line, {"--print-config"}).out.find(line.substr(0, line.size() - 1)), std::string::npos);
  ASSERT_EQ(fit(line).exit_code, 0);
  EXPECT_EQ(word_of_run(), "medium");
  std::filesystem::remove_all(run_folder_);
  ASSERT_EQ(fit("").exit_code, 0);
  EXPECT_EQ(word_of_run(), "highest") << "the process's own";
}

TEST_F(LookingInside, DeterministicTakesTruthAndWords) {
  for (const char* value : {"true", "\"true\""})
    EXPECT_NE(fit(std::string("deterministic = ") + value + "\n", {"--print-config"})
                  .out.find("deterministic = \"true\""),
              std::string::npos)
        << value;
  EXPECT_NE(fit("deterministic = \"warn\"\n", {"--print-config"}).out.find("deterministic = \"warn\""),
            std::string::npos);
  EXPECT_NE(fit("", {"--print-config", "trainer.deterministic=true"}).out.find("deterministic = \"true\""),
            std::string::npos);
  EXPECT_EQ(fit("deterministic = true\ndetect_anomaly = true\n").exit_code, 0);
}

TEST_F(LookingInside, ValuesAreCheckedBeforeTheRun) {
  const auto expect = [&](const std::string& line, const std::string& text) {
    const ProgramRun run = fit(line + "\n", {"--check"});
    EXPECT_EQ(run.exit_code, 2) << line;
    EXPECT_NE(run.err.find(text), std::string::npos) << run.err;
  };
  expect("track_grad_norm = -1", "'trainer.track_grad_norm': expected a number >= 0, found -1");
  expect("detect_anomaly = \"yes\"", "'trainer.detect_anomaly': expected true or false");
  expect("deterministic = \"wran\"", "did you mean \"warn\"?");
  expect("deterministic = 1", "'trainer.deterministic': expected");
  expect("profile = 3", "'trainer.profile': expected true or false");
  expect("profile_active = 0", "'trainer.profile_active': expected an integer >= 1 and <= 1000, found 0");
  expect("profile_wait = -1", "'trainer.profile_wait': expected an integer >= 0, found -1");
}

}  // namespace
}  // namespace kindling
