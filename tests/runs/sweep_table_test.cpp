#include "runs/sweep_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "runs/sweep_results.h"
#include "support/scratch.h"

namespace kindling {
namespace {

const SweepPlan kPlan{.keys = {"optimizer.name", "lr"},
                      .runs = {{.name = "001", .values = {"\"adam\"", "1e-4"}},
                               {.name = "002", .values = {"\"a, \\\"b\"", "2"}}}};
const std::vector<SweepRow> kRows{
    {.status = "finished", .monitor = "val_acc", .best = 0.5, .best_epoch = 2, .epochs = 3, .steps = 30},
    {.status = "failed", .note = "exit code 1: no \"data\""}};

TEST(SweepTable, HasARowPerRunAsCsv) {
  EXPECT_EQ(sweep_csv(kPlan, kRows),
            "run,optimizer.name,lr,status,monitor,best,best_epoch,epochs,steps,note\n"
            "001,adam,1e-4,finished,val_acc,0.5,2,3,30,\n"
            "002,\"\"\"a, \\\"\"b\"\"\",2,failed,,,,,,\"exit code 1: no \"\"data\"\"\"\n");
}

TEST(SweepTable, HasTheSameValuesAsJson) {
  const auto rows = nlohmann::json::parse(sweep_json(kPlan, kRows))["runs"];
  EXPECT_EQ(rows[0], (nlohmann::json{{"run", "001"},
                                     {"values", {{"optimizer.name", "adam"}, {"lr", "1e-4"}}},
                                     {"status", "finished"},
                                     {"monitor", "val_acc"},
                                     {"best", 0.5},
                                     {"best_epoch", 2},
                                     {"epochs", 3},
                                     {"steps", 30},
                                     {"note", ""}}));
  EXPECT_EQ(rows[1]["best"], nullptr);
  EXPECT_EQ(rows[1]["note"], "exit code 1: no \"data\"");
}

TEST(SweepTable, FindsTheBestFinishedRun) {
  std::vector<SweepRow> rows(4, SweepRow{.status = "finished", .monitor = "val_acc", .best = 0.5});
  rows[0].best = std::numeric_limits<double>::quiet_NaN();
  rows[2].best = 0.9;
  rows[3] = {.status = "diverged", .monitor = "val_acc", .best = 1.0};
  rows.push_back({.status = "finished", .monitor = "val_loss", .best = 2.3});  // of another model
  EXPECT_EQ(best_row(rows, "val_acc", true), 2u);
  EXPECT_EQ(best_row(rows, "val_acc", false), 1u);
  EXPECT_EQ(best_row(rows, "", true), std::nullopt);
  EXPECT_EQ(best_row({}, "val_acc", true), std::nullopt);
}

TEST(SweepResults, DoNotRepeatWhatHasEnded) {
  const Scratch scratch;
  const auto write_run = [&](const std::string& name, const std::string& status, const std::string& reason) {
    std::filesystem::create_directories(scratch / name / "0001");
    write_text(scratch / name / "0001/run.json",
               "{\"status\": \"" + status + "\", \"reason\": \"" + reason + "\"}");
  };
  SweepPlan plan;
  for (const char* name : {"001", "002", "003", "004"}) plan.runs.push_back({.name = name});
  write_run("001", "stopped", "early_stop");
  write_run("002", "stopped", "requested");
  write_run("003", "stopped", "time");
  const SweepResults results(plan, scratch / ".");
  EXPECT_FALSE(results.is_to_run(0));
  EXPECT_TRUE(results.is_to_run(1));  // by a signal
  EXPECT_FALSE(results.is_to_run(2));
  EXPECT_TRUE(results.is_to_run(3));
}

// A failed run that starts again makes a directory a moment later.
TEST(SweepResults, FollowANewDirectoryAfterARetry) {
  const Scratch scratch;
  const auto write_epoch = [&](const std::string& run, const std::string& loss) {
    std::filesystem::create_directories(scratch / run);
    write_text(scratch / run / "metrics.jsonl",
               "{\"epoch\": 1, \"global_step\": 5, \"loss\": " + loss + "}\n");
  };
  SweepPlan plan{.monitor = "loss", .mode = "min", .median = {.is_on = true, .min_epochs = 1, .min_runs = 2}};
  for (const char* name : {"001", "002", "003"}) plan.runs.push_back({.name = name});
  for (const char* name : {"001", "002", "003"}) write_epoch(std::string(name) + "/0001", "1");
  for (const char* name : {"001", "002"})
    write_text(scratch / name / "0001/run.json", R"({"status": "finished"})");
  SweepResults results(plan, scratch / ".");
  results.note_start(2);
  EXPECT_FALSE(results.stop_by_median(2));  // reads the directory of the failed start
  write_epoch("003/0002", "9");
  EXPECT_TRUE(results.stop_by_median(2));
}

TEST(SweepResults, ReadTheRecordsOfAnEndedRunOnce) {
  const Scratch scratch;
  SweepPlan plan{.monitor = "loss", .mode = "min", .median = {.is_on = true, .min_epochs = 1, .min_runs = 1}};
  for (const char* name : {"001", "002"}) plan.runs.push_back({.name = name});
  std::filesystem::create_directories(scratch / "001/0001");
  std::filesystem::create_directories(scratch / "002/0001");
  const auto write_loss = [&](const std::string& run, const std::string& loss) {
    write_text(scratch / run / "0001/metrics.jsonl",
               "{\"epoch\": 1, \"global_step\": 5, \"loss\": " + loss + "}\n");
  };
  write_loss("001", "9.25");
  write_text(scratch / "001/0001/run.json", R"({"status": "finished"})");
  write_loss("002", "5");
  SweepResults results(plan, scratch / ".");
  results.note_start(1);
  EXPECT_FALSE(results.stop_by_median(1));
  write_loss("001", "1");
  EXPECT_FALSE(results.stop_by_median(1));
}

TEST(EpochReader, FollowsAFileThatIsCutBack) {
  const Scratch scratch;
  const auto file = scratch / "metrics.jsonl";
  EpochReader reader(file, "loss");
  EXPECT_TRUE(reader.update().empty());
  const std::string first =
      "{\"global_step\": 5, \"epoch\": 1, \"loss\": 9}\n{\"epoch\": 1, \"global_step\": 5, \"loss\": 2.5}\n";
  write_text(file, first + "{\"epoch\": 2, \"global_step\": 10, \"lo");
  ASSERT_EQ(reader.update().size(), 1u);
  EXPECT_EQ(reader.update().at(1).value, 2.5);
  EXPECT_EQ(reader.update().at(1).steps, 5);
  write_text(
      file,
      first +
          "{\"epoch\": 2, \"global_step\": 10, \"loss\": null}\nnot json\n{\"epoch\": \"x\", \"loss\": 1}\n");
  ASSERT_EQ(reader.update().size(), 2u);
  EXPECT_TRUE(std::isnan(reader.update().at(2).value));
  write_text(file, first);
  EXPECT_EQ(reader.update().size(), 1u);
}

}  // namespace
}  // namespace kindling
