#include "kindling/loggers/run_folder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "support/scratch.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

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

}  // namespace
}  // namespace kindling
