#include "cli/run/run_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "kindling/base/error.h"
#include "support/scratch.h"

namespace kindling {
namespace {

TEST(FitFolder, IsUniqueForSimultaneousRuns) {
  const Scratch scratch;
  std::mutex mutex;
  std::set<std::filesystem::path> made;
  std::vector<std::thread> runs;
  for (int i = 0; i < 8; ++i)
    runs.emplace_back([&] {
      for (int j = 0; j < 25; ++j) {
        const FitFolder folder(scratch.folder(), "same");
        folder.write_summary({.status = "finished"});
        const std::lock_guard lock(mutex);
        made.insert(folder.path());
      }
    });
  for (std::thread& run : runs) run.join();
  EXPECT_EQ(made.size(), 8u * 25u);
  EXPECT_EQ(made.rbegin()->filename(), "0200");  // and no number is skipped
}

class KilledRunFolder : public testing::Test {
 protected:
  std::filesystem::path next() const { return FitFolder(scratch_.folder(), "small").path().filename(); }
  std::filesystem::path run() const { return scratch_ / "small/0001"; }
  void SetUp() override { FitFolder(scratch_.folder(), "small").write_summary({.status = "running"}); }

  const Scratch scratch_;
};

TEST_F(KilledRunFolder, IsReusedBeforeItsFirstCheckpoint) {
  EXPECT_EQ(next(), "0001");
  std::filesystem::remove(run() / "run.json");  // as right after the folder was created
  EXPECT_EQ(next(), "0001");
  std::filesystem::create_directory(run() / "checkpoints");
  std::ofstream(run() / "checkpoints/.lock") << "1\n";
  std::ofstream(run() / "metrics.jsonl") << "{\"global_step\": 1, \"epoch\": 1}\n";
  EXPECT_EQ(next(), "0001");
  EXPECT_TRUE(FitFolder(scratch_.folder(), "small").is_reused());
}

TEST_F(KilledRunFolder, IsKeptWithAnythingThatWasTrained) {
  const std::pair<const char*, const char*> files[] = {
      {"checkpoints/step-00000001.safetensors", "damaged"},
      {"checkpoints/step-00000001.safetensors.set_aside", "x"},
      {"weights.safetensors", "x"},
      {"metrics.csv", "epoch,global_step\n1,2\n"},
      {"metrics.jsonl", "{\"global_step\": 1, \"epoch\": 1}\n{\"epoch\": 1, \"global_step\": 1}\n"},
      {"run.json", "{\"status\": \"failed\"}"},
      {"run.json", "{\"status\": \"stopped\"}"}};
  std::filesystem::create_directory(run() / "checkpoints");
  for (const auto& [name, text] : files) {
    std::ofstream(run() / name) << text;
    EXPECT_EQ(next(), "0002") << name << ": " << text;
    std::filesystem::remove_all(scratch_ / "small/0002");
    std::filesystem::remove(run() / name);
    EXPECT_EQ(next(), "0001") << name;
  }
}

TEST_F(KilledRunFolder, IsNotAFolderOfSomebodyElse) {
  std::filesystem::remove(run() / "run.json");
  std::ofstream(run() / "notes.txt") << "mine";
  EXPECT_EQ(next(), "0002");
}

TEST_F(KilledRunFolder, IsNotTakenFromALivingRun) {
  const FitFolder living(scratch_.folder(), "small");
  EXPECT_EQ(living.path().filename(), "0001");
  EXPECT_EQ(next(), "0002");
}

TEST_F(KilledRunFolder, LosesItsTemporaryFiles) {
  for (const char* name : {".weights.safetensors.tmp.4194305", ".run.json.tmp.4194305"})
    std::ofstream(run() / name) << "half";
  EXPECT_EQ(next(), "0001");
  for (const auto& entry : std::filesystem::directory_iterator(run()))
    EXPECT_EQ(entry.path().filename().string().find(".tmp."), std::string::npos) << entry.path();
}

TEST(FitFolder, RecordsHostCommitAndData) {
  const Scratch scratch;
  const FitFolder folder(scratch.folder(), "small");
  const auto summary = [&](const RunSummary& written) {
    folder.write_summary(written);
    std::ifstream file(folder.file("run.json"));
    return nlohmann::json::parse(file);
  };
  char host[256] = {};
  ASSERT_EQ(::gethostname(host, sizeof host - 1), 0);
  const auto whole =
      summary({.git = {.commit = std::string(40, 'a'), .branch = "main"},
               .data = {.name = "mine", .train = 5, .val = 3, .checksum = "0123456789abcdef"}});
  EXPECT_EQ(whole["host"], host);
  EXPECT_EQ(whole["git"].dump(), R"({"branch":"main","commit":")" + std::string(40, 'a') + "\"}");
  EXPECT_EQ(whole["data"].dump(), R"({"checksum":"0123456789abcdef","name":"mine","train":5,"val":3})");
  const auto unknown = summary({.data = {.train = 5}});
  EXPECT_FALSE(unknown.contains("git"));
  EXPECT_EQ(unknown["data"].dump(), R"({"train":5})");
}

TEST(FitFolder, NoticesTheRemovalOfItsLock) {
  const Scratch scratch;
  FitFolder folder(scratch.folder(), "small");
  std::filesystem::remove(folder.file(".lock"));
  folder.renew_lock();
  EXPECT_THROW(FitFolder(folder.path()), Error);
  std::filesystem::remove(folder.file(".lock"));
  const FitFolder other(folder.path());
  EXPECT_THROW(folder.renew_lock(), Error);
}

}  // namespace
}  // namespace kindling
