#include "kindling/loggers/tensorboard_logger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

#include "base/file_operations.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "loggers/event_file.h"
#include "support/scratch.h"

namespace kindling {
namespace {

using Points = std::vector<std::pair<std::int64_t, std::int64_t>>;  // epoch (-1: none) and step

Points points_of(const std::filesystem::path& file) {
  EventReader reader(file);
  Points points;
  for (EventRecord event; reader.next(event);)
    if (!event.tags.empty()) points.emplace_back(event.epoch, event.step);
  return points;
}

std::vector<std::filesystem::path> event_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

// Two epochs of two steps, as a trainer logs them.
void write_epoch(TensorBoardLogger& logger, std::int64_t epoch) {
  for (std::int64_t step = 2 * epoch - 1; step <= 2 * epoch; ++step)
    logger.write({.kind = Record::Kind::step,
                  .global_step = step,
                  .epoch = epoch,
                  .values = {{"train_loss_step", 0.5}}});
  logger.write(
      {.kind = Record::Kind::epoch, .global_step = 2 * epoch, .epoch = epoch, .values = {{"val_loss", 1.0}}});
}

// Written by TensorBoard 2.21's RecordWriter: the version, epoch 3 at step 300, and a step 301.
constexpr unsigned char kForeign[] =
    "\x18\x00\x00\x00\x00\x00\x00\x00\xa3\x7f\x4b\x22\x09\x00\x00\x00\x00\x00\x00\xf8\x3f\x1a\x0d\x62\x72\x61"
    "\x69\x6e\x2e\x45\x76\x65\x6e\x74\x3a\x32\x2a\x28\x64\x6c\x2d\x00\x00\x00\x00\x00\x00\x00\x3c\x41\x8a\xfb"
    "\x09\x00\x00\x00\x00\x00\x00\x04\x40\x10\xac\x02\x2a\x1f\x0a\x0c\x0a\x05\x65\x70\x6f\x63\x68\x15\x00\x00"
    "\x40\x40\x0a\x0f\x0a\x08\x76\x61\x6c\x5f\x6c\x6f\x73\x73\x15\x00\x00\x80\x3e\xd0\x57\x68\x94\x26\x00\x00"
    "\x00\x00\x00\x00\x00\x73\x4f\xe3\x00\x09\x00\x00\x00\x00\x00\x00\x0c\x40\x10\xad\x02\x2a\x18\x0a\x16\x0a"
    "\x0f\x74\x72\x61\x69\x6e\x5f\x6c\x6f\x73\x73\x5f\x73\x74\x65\x70\x15\x00\x00\x00\x3f\x7e\xaf\x7b\x22";

std::string foreign() { return {reinterpret_cast<const char*>(kForeign), sizeof(kForeign) - 1}; }

TEST(EventReader, ReadsFilesOfTensorBoardItself) {
  const Scratch scratch;
  write_file_atomically(scratch / "events", foreign());
  EXPECT_EQ(points_of(scratch / "events"), (Points{{3, 300}, {-1, 301}}));
}

TEST(EventReader, EndsBeforeAnyDamagedByte) {
  const Scratch scratch;
  for (std::size_t at = 0; at < foreign().size(); ++at) {
    std::string damaged = foreign();
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    write_file_atomically(scratch / "events", damaged);
    EventReader reader(scratch / "events");
    for (EventRecord event; reader.next(event);) {
    }
    EXPECT_LE(reader.end(), at);
    EXPECT_TRUE(reader.is_damaged());
  }
}

TEST(TensorBoardLogger, WritesOneEventForEachRecord) {
  const Scratch scratch;
  {
    TensorBoardLogger logger(scratch / ".");
    logger.add_text("config", "seed = 3");
    EXPECT_TRUE(event_files(scratch / ".").empty());  // until the first record
    write_epoch(logger, 1);
    write_epoch(logger, 2);
    logger.finish();
  }
  const auto files = event_files(scratch / ".");
  ASSERT_EQ(files.size(), 1);
  EXPECT_EQ(points_of(files[0]), (Points{{-1, 1}, {-1, 2}, {1, 2}, {-1, 3}, {-1, 4}, {2, 4}}));
  EXPECT_NE(read_file(files[0], 10000).find("seed = 3"), std::string::npos);
}

TEST(TensorBoardLogger, WritesEpochsToTheSystemAtOnce) {
  const Scratch scratch;
  TensorBoardLogger logger(scratch / ".");
  write_epoch(logger, 1);
  EXPECT_EQ(points_of(event_files(scratch / ".").at(0)).size(), 3);
}

TEST(TensorBoardLogger, ResumesWithoutAPointTwice) {
  const Scratch scratch;
  {
    TensorBoardLogger logger(scratch / ".");
    write_epoch(logger, 1);
    write_epoch(logger, 2);
  }
  // A killed process leaves a partial event.
  const auto former = event_files(scratch / ".").at(0);
  std::ofstream(former, std::ios::app | std::ios::binary) << foreign().substr(0, 20);
  {
    TensorBoardLogger logger(scratch / ".");
    logger.resume_at({.epoch = 1, .batch = 1, .global_step = 3});
    logger.write(
        {.kind = Record::Kind::step, .global_step = 4, .epoch = 2, .values = {{"train_loss_step", 0.5}}});
    logger.write({.kind = Record::Kind::epoch, .global_step = 4, .epoch = 2, .values = {{"val_loss", 1.0}}});
  }
  EXPECT_EQ(points_of(former), (Points{{-1, 1}, {-1, 2}, {1, 2}, {-1, 3}}));
  std::size_t num_points = 0;
  for (const auto& file : event_files(scratch / ".")) {
    num_points += points_of(file).size();
    EventReader reader(file);
    for (EventRecord event; reader.next(event);) {
    }
    EXPECT_FALSE(reader.is_damaged()) << file;
  }
  EXPECT_EQ(num_points, 6);
}

using TagsOfSteps = std::vector<std::pair<std::int64_t, std::vector<std::string>>>;

TagsOfSteps tags_of(const std::filesystem::path& file) {
  EventReader reader(file);
  TagsOfSteps tags;
  for (EventRecord event; reader.next(event);)
    if (!event.tags.empty()) tags.emplace_back(event.step, event.tags);
  return tags;
}

Record step_with_lr(std::int64_t step) {
  return {.kind = Record::Kind::step,
          .global_step = step,
          .epoch = 1,
          .values = {{"train_loss_step", 0.5}, {"lr", 0.1}}};
}

TEST(TensorBoardLogger, WritesOnePointOfATagPerStep) {
  const Scratch scratch;
  const Record epoch{.global_step = 2, .epoch = 1, .values = {{"train_loss", 0.5}, {"lr", 0.1}}};
  TensorBoardLogger logger(scratch / ".");
  logger.write(step_with_lr(1));
  logger.write(step_with_lr(2));
  logger.write(epoch);
  logger.write({.global_step = 4, .epoch = 2, .values = {{"train_loss", 0.5}, {"lr", 0.1}}});
  logger.finish();
  EXPECT_EQ(tags_of(event_files(scratch / ".").at(0)), (TagsOfSteps{{1, {"train_loss_step", "lr"}},
                                                                    {2, {"train_loss_step", "lr"}},
                                                                    {2, {"epoch", "train_loss"}},
                                                                    {4, {"epoch", "train_loss", "lr"}}}));
  // Saved between the last step of the epoch and its end.
  TensorBoardLogger resumed(scratch / ".");
  resumed.resume_at({.epoch = 0, .batch = 2, .global_step = 2});
  resumed.write(epoch);
  resumed.finish();
  EXPECT_EQ(tags_of(event_files(scratch / ".").at(1)), (TagsOfSteps{{2, {"epoch", "train_loss"}}}));
}

TEST(TensorBoardLogger, WritesThePointsOfASecondFitAtTheSameStep) {
  const Scratch scratch;
  TensorBoardLogger logger(scratch / ".");
  for (int fit = 0; fit < 2; ++fit) {
    logger.write({.global_step = 4, .epoch = 1, .values = {{"train_loss", 0.5}}});
    logger.finish();
  }
  EXPECT_EQ(tags_of(event_files(scratch / ".").at(0)),
            (TagsOfSteps{{4, {"epoch", "train_loss"}}, {4, {"epoch", "train_loss"}}}));
}

TEST(TensorBoardLogger, RemovesATornEndOnResume) {
  const Scratch scratch;
  {
    TensorBoardLogger logger(scratch / ".");
    write_epoch(logger, 1);
  }
  const auto former = event_files(scratch / ".").at(0);
  const auto size = std::filesystem::file_size(former);
  std::ofstream(former, std::ios::app | std::ios::binary) << foreign().substr(0, 20);
  TensorBoardLogger(scratch / ".").resume_at({.epoch = 1, .global_step = 2});
  EXPECT_EQ(std::filesystem::file_size(former), size);
}

TEST(TensorBoardLogger, WritesRecordsLaterAfterAFullDisk) {
  struct Full : FileOperations {
    bool is_full = false;
    ssize_t write(int file, const void* bytes, std::size_t size) override {
      if (is_full) return errno = ENOSPC, -1;
      return FileOperations::write(file, bytes, size);
    }
  } operations;
  const ScopedFileOperations in_force(operations);
  const Scratch scratch;
  TensorBoardLogger logger(scratch / ".");
  write_epoch(logger, 1);
  operations.is_full = true;
  EXPECT_THROW(write_epoch(logger, 2), Error);
  operations.is_full = false;
  logger.sync();
  EXPECT_EQ(points_of(event_files(scratch / ".").at(0)),
            (Points{{-1, 1}, {-1, 2}, {1, 2}, {-1, 3}, {-1, 4}, {2, 4}}));
}

TEST(TensorBoardLogger, WritesTextsOnce) {
  const Scratch scratch;
  const auto start = [&](const Progress& at) {
    TensorBoardLogger logger(scratch / ".");
    logger.add_text("config", "seed = 3");
    logger.resume_at(at);
    write_epoch(logger, at.epoch + 1);
  };
  start({});  // no former file has them
  start({.epoch = 1, .global_step = 2});
  int num_texts = 0;
  for (const auto& file : event_files(scratch / "."))
    num_texts += read_file(file, 10000).find("seed = 3") != std::string::npos;
  EXPECT_EQ(num_texts, 1);
}

// HParamsPluginData.session_end_info with its status, before the time.
constexpr std::string_view kSuccess = "\x22\x0b\x08\x01\x11", kFailure = "\x22\x0b\x08\x02\x11";

std::string session_of(FitStatus status) {
  const Scratch scratch;
  TensorBoardLogger logger(scratch / ".");
  logger.add_hyperparameters({{"lr", "0.1"}}, {"val_loss"});
  write_epoch(logger, 1);
  logger.finalize(status);
  const std::string bytes = read_file(event_files(scratch / ".").at(0), 10000);
  return bytes.find(kSuccess) != std::string::npos   ? "success"
         : bytes.find(kFailure) != std::string::npos ? "failure"
                                                     : "open";
}

TEST(TensorBoardLogger, EndsTheSessionWithTheStatusOfTheFit) {
  EXPECT_EQ(session_of(FitStatus::finished), "success");
  EXPECT_EQ(session_of(FitStatus::diverged), "failure");
  EXPECT_EQ(session_of(FitStatus::failed), "failure");
  EXPECT_EQ(session_of(FitStatus::stopped), "open");
}

TEST(TensorBoardLogger, ShowsARunThatFailsBeforeItsFirstRecord) {
  const Scratch scratch;
  {
    TensorBoardLogger logger(scratch / ".");
    logger.add_hyperparameters({{"lr", "0.1"}}, {"val_loss"});
    logger.finalize(FitStatus::failed);
  }
  const std::string bytes = read_file(event_files(scratch / ".").at(0), 10000);
  EXPECT_NE(bytes.find("_hparams_/session_start_info"), std::string::npos);
  EXPECT_NE(bytes.find(kFailure), std::string::npos);
  {
    TensorBoardLogger without_parameters(scratch / "none");
    without_parameters.finalize(FitStatus::failed);
  }
  EXPECT_FALSE(std::filesystem::exists(scratch / "none"));
}

// TensorBoard uses the first end that it finds.
TEST(TensorBoardLogger, RemovesTheFormerEndOfTheSessionOnResume) {
  const Scratch scratch;
  const auto start = [&](const Progress& at, FitStatus status) {
    TensorBoardLogger logger(scratch / ".");
    logger.add_hyperparameters({{"lr", "0.1"}}, {"val_loss"});
    logger.resume_at(at);
    write_epoch(logger, at.epoch + 1);
    logger.finalize(status);
  };
  start({}, FitStatus::failed);
  start({.epoch = 1, .global_step = 2}, FitStatus::finished);
  int num_starts = 0, num_successes = 0;
  std::size_t num_points = 0;
  for (const auto& file : event_files(scratch / ".")) {
    const std::string bytes = read_file(file, 10000);
    EXPECT_EQ(bytes.find(kFailure), std::string::npos);
    num_starts += bytes.find("session_start_info") != std::string::npos;
    num_successes += bytes.find(kSuccess) != std::string::npos;
    num_points += points_of(file).size();
  }
  EXPECT_EQ(num_starts, 1);
  EXPECT_EQ(num_successes, 1);
  EXPECT_EQ(num_points, 6u);
}

TEST(TensorBoardLogger, KeepsRecordsAfterTheEndOfAFormerFitOnResume) {
  const Scratch scratch;
  {
    TensorBoardLogger logger(scratch / ".");
    logger.add_hyperparameters({{"lr", "0.1"}}, {"val_loss"});
    for (const std::int64_t epoch : {1, 2}) {  // two fits with one logger
      write_epoch(logger, epoch);
      logger.finalize(FitStatus::finished);
    }
  }
  TensorBoardLogger(scratch / ".").resume_at({.epoch = 2, .global_step = 4});
  EXPECT_EQ(points_of(event_files(scratch / ".").at(0)).size(), 6u);
}

TEST(TensorBoardLogger, LeavesOtherFilesAlone) {
  const Scratch scratch;
  write_file_atomically(scratch / "notes.txt", "mine");
  std::filesystem::create_directory(scratch / "events.out.tfevents.folder");
  TensorBoardLogger(scratch / ".").resume_at({});
  EXPECT_EQ(read_file(scratch / "notes.txt", 100), "mine");
}

TEST(TensorBoardLogger, SkipsEventFilesOfOtherProgramsOnResume) {
  const Scratch scratch;
  const auto file = scratch / "events.out.tfevents.1.host.2.0";
  write_file_atomically(file, foreign() + foreign().substr(0, 20));
  TensorBoardLogger(scratch / ".").resume_at({});
  EXPECT_EQ(read_file(file, 1000), foreign() + foreign().substr(0, 20));
}

TEST(TensorBoardLogger, ReplacesInvalidUtf8InNamesAndTexts) {
  const Scratch scratch;
  {
    TensorBoardLogger logger(scratch / ".");
    logger.add_text("a\xFF", "b\xC0z");
    logger.add_hyperparameters({{"c\xFE", "d\xFD"}}, {"e\xFC"});
    logger.write({.global_step = 1, .epoch = 1, .values = {{"loss\xFB", 1.0}, {"größe", 2.0}}});
  }
  const std::string bytes = read_file(event_files(scratch / ".").at(0), 10000);
  for (const char* const text : {"a\xEF\xBF\xBD/text_summary", "b\xEF\xBF\xBDz", "c\xEF\xBF\xBD",
                                 "d\xEF\xBF\xBD", "e\xEF\xBF\xBD", "loss\xEF\xBF\xBD", "größe"})
    EXPECT_NE(bytes.find(text), std::string::npos) << text;
  for (const char* const text : {"a\xFF", "b\xC0", "c\xFE", "d\xFD", "e\xFC", "loss\xFB"})
    EXPECT_EQ(bytes.find(text), std::string::npos) << text;
}

TEST(TensorBoardLogger, WritesARemovedFileAgain) {
  const Scratch scratch;
  TensorBoardLogger logger(scratch / ".");
  write_epoch(logger, 1);
  const auto file = event_files(scratch / ".").at(0);
  std::filesystem::remove(file);
  write_epoch(logger, 2);
  EXPECT_EQ(points_of(file), (Points{{-1, 1}, {-1, 2}, {1, 2}, {-1, 3}, {-1, 4}, {2, 4}}));
}

TEST(TensorBoardLogger, WritesAReplacedFileUnderAnotherName) {
  const Scratch scratch;
  TensorBoardLogger logger(scratch / ".");
  write_epoch(logger, 1);
  const auto file = event_files(scratch / ".").at(0);
  std::filesystem::remove(file);
  write_file_atomically(file, foreign());
  write_epoch(logger, 2);
  EXPECT_EQ(read_file(file, 1000), foreign());
  EXPECT_EQ(points_of(file.string() + "_"), (Points{{-1, 1}, {-1, 2}, {1, 2}, {-1, 3}, {-1, 4}, {2, 4}}));
}

TEST(EventFile, KeepsTimesInOrderWhenTheClockIsSetBack) {
  const Scratch scratch;
  double now = 100;
  {
    EventFile file(scratch / ".", 1, [&] { return now; });
    for (const double time : {101.0, 50.0, 102.0}) {
      now = time;
      file.append(event_at(1));
    }
  }
  std::vector<double> times;
  EventReader reader(event_files(scratch / ".").at(0));
  for (EventRecord event; reader.next(event);) times.push_back(event.wall_time);
  EXPECT_EQ(times, (std::vector<double>{100, 100, 101, 101, 102}));
}

}  // namespace
}  // namespace kindling
