#include "runs/run_list.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "support/scratch.h"

namespace kindling {
namespace {

class RunLists : public testing::Test {
 protected:
  std::filesystem::path make(const std::string& name, const std::string& summary,
                             const std::string& config = "") {
    const auto run = scratch_ / name;
    std::filesystem::create_directories(run);
    write_text(run / "run.json", summary);
    if (!config.empty()) write_text(run / "config.toml", config);
    return run;
  }
  static std::string finished(double best, const std::string& started) {
    return R"({"status": "finished", "reason": "finished", "started": ")" + started +
           R"(", "seconds": 65.2, "global_step": 20,
      "best": {"name": "val_acc", "value": )" +
           std::to_string(best) + R"(, "epoch": 2}})";
  }
  std::vector<std::string> names(const std::string& order, bool higher_is_better = true) {
    RunList list = list_runs(scratch_.folder(), "");
    sort_runs(list.runs, order, higher_is_better);
    std::vector<std::string> names;
    for (const ListedRun& run : list.runs) names.push_back(run.name);
    return names;
  }
  std::string status(const std::string& name) {
    return list_runs(scratch_ / name, "").runs.at(0).record.status;
  }

  const Scratch scratch_;
};

TEST_F(RunLists, ShowResultsAndDifferingKeys) {
  const auto config = [](const std::string& lr, const std::string& name) {
    return "seed = 0  # seed\nname = \"" + name + "\"\n\n[optimizer]\nname = \"adam\"\nlr = " + lr +
           "  # a \"comment\"\n";
  };
  write_text(
      make("a/0001", finished(0.75, "2026-01-01T00:00:00Z"), config("0.1", "a")) / "metrics.jsonl",
      "{\"global_step\": 1, \"epoch\": 1}\n{\"epoch\": 2, \"global_step\": 20, \"val_acc\": 0.75}\n{\"epo");
  make("a/0002", finished(0.5, "2026-01-01T00:00:01Z"), config("0.2", "b"));
  RunList list = list_runs(scratch_.folder(), "");
  sort_runs(list.runs, "time", true);
  EXPECT_EQ(table_of_runs(list, 160),
            "run      status     best       value   epoch   epochs   steps    time   lr\n"
            "a/0001   finished   val_acc   0.7500       2        2      20   01:05   0.1\n"
            "a/0002   finished   val_acc   0.5000       2        -      20   01:05   0.2\n"
            "2 runs\n");
  EXPECT_NE(table_of_runs(list, 70).find("2 runs; 1 more config key differs (see --json)\n"),
            std::string::npos);
  const auto json = nlohmann::json::parse(json_of_runs(list));
  EXPECT_EQ(json["runs"][0]["config"], (nlohmann::json{{"optimizer.lr", "0.1"}}));
  EXPECT_EQ(json["runs"][0]["best"]["value"], 0.75);
  EXPECT_EQ(json["skipped"], 0);
}

TEST_F(RunLists, AreSorted) {
  make("x/0001", finished(0.2, "2026-01-03T00:00:00Z"));
  make("x/0002", finished(0.9, "2026-01-01T00:00:00Z"));
  make("x/0003", R"({"status": "failed", "started": "2026-01-02T00:00:00Z"})");
  using Names = std::vector<std::string>;
  EXPECT_EQ(names("name"), (Names{"x/0001", "x/0002", "x/0003"}));
  EXPECT_EQ(names("time"), (Names{"x/0002", "x/0003", "x/0001"}));
  EXPECT_EQ(names("best"), (Names{"x/0003", "x/0001", "x/0002"}));
  EXPECT_EQ(names("best", false), (Names{"x/0003", "x/0002", "x/0001"}));
  EXPECT_EQ(names("status"), (Names{"x/0003", "x/0001", "x/0002"}));
  EXPECT_TRUE(is_higher_better("val_acc"));
  EXPECT_FALSE(is_higher_better("val_loss"));
}

// A lock file that its process has left behind means nothing.
TEST_F(RunLists, ShowARunAsRunningOnlyWhileAProcessHasItsLock) {
  const auto run = make("x/0001", R"({"status": "running"})");
  EXPECT_EQ(status("x/0001"), "killed");
  {
    const FolderLock lock(run);
    EXPECT_EQ(status("x/0001"), "running");
  }
  EXPECT_EQ(status("x/0001"), "killed");
  EXPECT_EQ(read_file(run / ".lock", 100), std::to_string(::getpid()) + "\n");
  EXPECT_TRUE(FolderLock::if_free(run));  // reading has left no lock
}

TEST_F(RunLists, SurviveDamagedAndForeignDirectories) {
  make("x/0001", finished(0.5, "2026-01-01T00:00:00Z"), "[[[\n= = =\n\"" + std::string(3, '\0'));
  for (const char* text :
       {"", "{", "[]", "null", "{\"status\": 3}", "\xff\xfe", "{\"status\": \"running\", \"best\": 1}",
        "{\"status\": \"finished\", \"best\": {\"value\": \"x\"}, \"seconds\": \"1\"}"})
    make("x/" + std::to_string(2 + std::filesystem::hash_value(text) % 100'000), text);
  make("x/evil\n\x1b[31m", "{\"status\": \"a\\nb\"}");
  std::filesystem::create_directories(scratch_ / "notes/pictures");
  std::filesystem::create_directories(scratch_ / "x/7/run.json");
  ::mkfifo((scratch_ / "x/0001/metrics.jsonl").c_str(), 0600);
  std::filesystem::create_directory_symlink(scratch_.folder(), scratch_ / "x/loop");
  RunList list = list_runs(scratch_.folder(), "");
  const std::string table = table_of_runs(list, 200);
  EXPECT_NE(table.find("unreadable"), std::string::npos);
  EXPECT_NE(table.find("skipped"), std::string::npos);
  EXPECT_EQ(table.find('\x1b'), std::string::npos);
  EXPECT_NE(table.find("x/0001"), std::string::npos);
  EXPECT_TRUE(nlohmann::json::parse(json_of_runs(list)).is_object());
}

TEST_F(RunLists, AreFilteredByName) {
  make("a/0001", finished(0.2, ""));
  make("b/0001", finished(0.2, ""));
  const RunList list = list_runs(scratch_.folder(), "b/");
  ASSERT_EQ(list.runs.size(), 1u);
  EXPECT_EQ(list.runs[0].name, "b/0001");
  EXPECT_EQ(list.num_skipped, 0u);
}

TEST(ConfigDifferences, CompareKeysOfDifferentConfigs) {
  ConfigDifferences configs;
  configs.add(
      "seed = 0\n[model]\nname = \"mlp\"\nhidden = [1, 2]  # widths\n[[optimizer.groups]]\nlr = "
      "1\n[[optimizer.groups]]\nlr = 2\n");
  configs.add(
      "seed = 1\n[model]\nname = \"mlp\"\nhidden = [1, 2]\n[[optimizer.groups]]\nlr = "
      "1\n[[optimizer.groups]]\nlr = 3\n");
  configs.add("[model]\nname = \"a # b\"  # c\nkernel = 3\n");
  configs.add_unknown();
  EXPECT_EQ(configs.keys(),
            (std::vector<std::string>{"seed", "model.name", "model.hidden", "optimizer.groups[0].lr",
                                      "optimizer.groups[1].lr", "model.kernel"}));
  EXPECT_EQ(configs.value(0, "model.hidden"), "[1, 2]");
  EXPECT_EQ(configs.value(1, "model.hidden"), "[1, 2]");
  EXPECT_EQ(configs.value(1, "optimizer.groups[1].lr"), "3");
  EXPECT_EQ(configs.value(2, "model.name"), "\"a # b\"");
  EXPECT_EQ(configs.value(2, "seed"), "");
  EXPECT_EQ(configs.value(3, "seed"), "");
}

}  // namespace
}  // namespace kindling
