#include "runs/run_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/runs/run_folder.h"
#include "loggers/event_file.h"
#include "support/scratch.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

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

Record epoch_with(std::int64_t epoch, double val_loss) {
  return {
      .kind = Record::Kind::epoch, .global_step = epoch, .epoch = epoch, .values = {{"val_loss", val_loss}}};
}

// Without the part of the names of event files that differs between runs.
std::set<std::string> files_of(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    names.insert(name.substr(0, name.find(".tfevents.")));
  }
  return names;
}

std::string text_of_file(const fs::path& file) { return read_file(file, 1 << 22); }

TEST(LibraryRunFolder, HasTheNextFreeNumber) {
  const Scratch scratch;
  const RunFolder first(scratch.folder(), "mlp");
  EXPECT_EQ(first.path(), scratch / "mlp/0001");
  EXPECT_EQ(first.checkpoints(), scratch / "mlp/0001/checkpoints");
  { const RunFolder second(scratch.folder(), "mlp"); }
  EXPECT_EQ(RunFolder(scratch.folder(), "mlp").path(), scratch / "mlp/0003");  // 0002 is not reused
  fs::create_directory(scratch / "mlp/0041");
  EXPECT_EQ(RunFolder(scratch.folder(), "mlp").path(), scratch / "mlp/0042");
}

TEST(LibraryRunFolder, IsLockedWhileItLives) {
  const Scratch scratch;
  {
    const RunFolder run(scratch.folder(), "mlp");
    EXPECT_THROW(RunFolder{run.path()}, Error);
  }
  std::ofstream(scratch / "mlp/0001/.metrics.csv.tmp.4194305") << "half";
  const RunFolder again(scratch / "mlp/0001");
  EXPECT_EQ(files_of(again.path()), (std::set<std::string>{".lock"}));
  EXPECT_THROW(RunFolder(scratch / "mlp/0007"), Error);
}

TEST(LibraryRunFolder, RejectsNamesThatArePaths) {
  const Scratch scratch;
  for (const std::string& name : {std::string(), std::string("."), std::string(".."), std::string("a/b")})
    EXPECT_EQ(error_text<Error>([&] { RunFolder(scratch.folder(), name); }),
              "RunFolder: the name '" + name +
                  "'; expected: the name of a directory, without '/'; put the path into the first argument");
  EXPECT_TRUE(files_of(scratch.folder()).empty());
}

TEST(LibraryRunFolder, RecordsAFitInAllFiles) {
  const Scratch scratch;
  const RunFolder run(scratch.folder(), "mlp");
  const auto loggers = run.loggers({.monitor = "val_loss"});
  for (const Record& record : {epoch_with(1, 0.5), epoch_with(2, 0.25), epoch_with(3, 0.75)})
    for (const auto& logger : loggers) logger->write(record);
  for (const auto& logger : loggers) logger->finish();
  EXPECT_EQ(files_of(run.path()), (std::set<std::string>{".lock", "curves.svg", "events.out", "metrics.csv",
                                                         "metrics.jsonl", "report.html"}));
  EXPECT_EQ(text_of_file(run.path() / "metrics.csv"),
            "epoch,global_step,val_loss\n1,1,0.5\n2,2,0.25\n3,3,0.75\n");
  const std::string report = text_of_file(run.path() / "report.html");
  EXPECT_NE(report.find("<dt>best</dt><dd>val_loss 0.2500, epoch 2</dd>"), std::string::npos);
  EXPECT_EQ(report.find("http-equiv=\"refresh\""), std::string::npos);  // the last one

  const auto resumed = run.loggers({.monitor = "val_loss"});
  for (const auto& logger : resumed) logger->resume_at({.epoch = 2, .global_step = 2});
  for (const auto& logger : resumed) logger->write(epoch_with(3, 0.125));
  for (const auto& logger : resumed) logger->finish();
  EXPECT_EQ(text_of_file(run.path() / "metrics.csv"),
            "epoch,global_step,val_loss\n1,1,0.5\n2,2,0.25\n3,3,0.125\n");
  const std::string lines = text_of_file(run.path() / "metrics.jsonl");
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 3) << lines;
  EXPECT_NE(text_of_file(run.path() / "report.html").find("val_loss 0.1250, epoch 3"), std::string::npos);
}

std::vector<std::int64_t> steps_in_events(const fs::path& folder) {
  std::vector<std::int64_t> steps;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (!entry.path().filename().string().starts_with("events.out.tfevents.")) continue;
    EventReader reader(entry.path());
    for (EventRecord event; reader.next(event);)
      if (!event.tags.empty()) steps.push_back(event.step);
  }
  std::ranges::sort(steps);
  return steps;
}

Record step_at(std::int64_t step) {
  return {.kind = Record::Kind::step,
          .global_step = step,
          .epoch = step,
          .values = {{"train_loss_step", 0.5}, {"lr", 0.1}}};
}

void log_steps(const RunFolder& run, std::int64_t last) {
  for (const auto& logger : run.loggers())
    for (std::int64_t step = 1; step <= last; ++step) {
      logger->write(step_at(step));
      if (step < last) logger->write(epoch_with(step, 0.5));  // the run is killed within its last epoch
    }
}

TEST(LibraryRunFolder, StartsItsRecordsAgainWithoutACheckpoint) {
  const Scratch scratch;
  log_steps(RunFolder(scratch.folder(), "mlp"), 3);
  const fs::path path = scratch / "mlp/0001";
  {
    const RunFolder again(path);
    EXPECT_EQ(steps_in_events(path), (std::vector<std::int64_t>{1, 1, 2, 2, 3}));  // until the first record
    log_steps(again, 2);
    EXPECT_EQ(steps_in_events(path), (std::vector<std::int64_t>{1, 1, 2}));
    EXPECT_EQ(text_of_file(path / "metrics.csv"), "epoch,global_step,val_loss\n1,1,0.5\n");
    const std::string step = ", \"train_loss_step\": 0.5, \"lr\": 0.1}\n",
                      once = "{\"global_step\": 1, \"epoch\": 1" + step +
                             "{\"epoch\": 1, \"global_step\": 1, \"val_loss\": 0.5}\n" +
                             "{\"global_step\": 2, \"epoch\": 2" + step;
    EXPECT_EQ(text_of_file(path / "metrics.jsonl"), once);
    log_steps(again, 2);  // a second fit of the same start keeps the records of the first
    EXPECT_EQ(text_of_file(path / "metrics.jsonl"), once + once);
  }
  // Both of these fits are of an earlier start now.
  log_steps(RunFolder(path), 1);
  EXPECT_EQ(steps_in_events(path), std::vector<std::int64_t>{1});
  EXPECT_EQ(text_of_file(path / "metrics.jsonl"),
            "{\"global_step\": 1, \"epoch\": 1, \"train_loss_step\": 0.5, \"lr\": 0.1}\n");
}

}  // namespace
}  // namespace kindling
