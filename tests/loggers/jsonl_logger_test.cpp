#include "kindling/loggers/jsonl_logger.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kindling/base/file.h"
#include "kindling/base/log.h"
#include "support/scratch.h"

namespace kindling {
namespace {

TEST(JsonlLogger, WritesOneObjectPerLine) {
  const Scratch scratch;
  JsonlLogger logger(scratch / "metrics.jsonl");
  logger.write(
      {.kind = Record::Kind::step, .global_step = 3, .epoch = 1, .values = {{"train_loss_step", 0.1}}});
  logger.write({.kind = Record::Kind::epoch,
                .global_step = 1000000,
                .epoch = 2,
                .values = {{"val_loss", -std::nan("")}, {"host_waits", 0}, {"my \"name\"", 2.5e-8}}});
  EXPECT_EQ(
      read_file(scratch / "metrics.jsonl", 1000),
      R"({"global_step": 3, "epoch": 1, "train_loss_step": 0.1})"
      "\n"
      R"({"epoch": 2, "global_step": 1000000, "val_loss": null, "host_waits": 0, "my \"name\"": 2.5e-08})"
      "\n");
}

TEST(JsonlLogger, KeepsEveryDigit) {
  const Scratch scratch;
  JsonlLogger(scratch / "metrics.jsonl")
      .write({.kind = Record::Kind::step,
              .global_step = 1,
              .epoch = 1,
              .values = {{"a", 1.0 / 3}, {"b", 16777217}}});
  EXPECT_EQ(read_file(scratch / "metrics.jsonl", 1000),
            R"({"global_step": 1, "epoch": 1, "a": 0.3333333333333333, "b": 16777217})"
            "\n");
}

TEST(JsonlLogger, ContinuesAFile) {
  const Scratch scratch;
  const Record record = {.kind = Record::Kind::epoch, .global_step = 5, .epoch = 1, .values = {}};
  JsonlLogger(scratch / "metrics.jsonl").write(record);
  JsonlLogger(scratch / "metrics.jsonl").write(record);
  const std::string line = R"({"epoch": 1, "global_step": 5})"
                           "\n";
  EXPECT_EQ(read_file(scratch / "metrics.jsonl", 1000), line + line);
}

// A run of three epochs of two steps, stopped at the end of the second one.
class DamagedRecords : public testing::Test {
 protected:
  DamagedRecords() {
    set_log_observer([this](LogLevel, const std::string& text) { log_ += text + "\n"; });
  }
  ~DamagedRecords() override { set_log_observer({}); }

  static std::string step(int number) {
    return "{\"global_step\": " + std::to_string(number) +
           ", \"epoch\": " + std::to_string((number + 1) / 2) + ", \"train_loss_step\": 0.5}\n";
  }
  static std::string epoch(int number) {
    return "{\"epoch\": " + std::to_string(number) + ", \"global_step\": " + std::to_string(2 * number) +
           ", \"train_loss\": 0.5}\n";
  }
  std::string resumed(const std::string& lines) {
    write_file_atomically(path_, lines);
    JsonlLogger logger(path_);
    logger.resume_at({.epoch = 2, .global_step = 4});
    logger.write(
        {.kind = Record::Kind::epoch, .global_step = 6, .epoch = 3, .values = {{"train_loss", 0.5}}});
    logger.sync();
    return read_file(path_, 10'000);
  }

  const Scratch scratch_;
  const std::filesystem::path path_ = scratch_ / "metrics.jsonl";
  std::string log_;
};

TEST_F(DamagedRecords, AreCutBackWithoutARowTwice) {
  const std::string kept = step(1) + step(2) + epoch(1) + step(3) + step(4) + epoch(2),
                    beyond = step(5) + step(6) + epoch(3);
  for (const std::string& damage :
       {std::string(), std::string(4096, '\0') + "\n", std::string("\n"),
        std::string("{\"global_step\": 5\n"), std::string("\xff\xfe\n"), std::string("[]\n")}) {
    log_.clear();
    EXPECT_EQ(resumed(kept + damage + beyond), kept + epoch(3));
    EXPECT_EQ(log_, damage.empty() ? "" : path_.string() + ": 1 line that cannot be read was removed\n");
    log_.clear();
    EXPECT_EQ(resumed(kept + step(5) + damage + step(6) + epoch(3)), kept + epoch(3));
    EXPECT_EQ(log_, "");  // it was beyond the checkpoint
    EXPECT_EQ(resumed(step(1) + damage + kept.substr(step(1).size()) + beyond), kept + epoch(3));
  }
}

TEST_F(DamagedRecords, ReportsZerosInPlaceOfRecords) {
  const std::string zeros(step(2).size() + epoch(1).size() - 10, '\0');
  EXPECT_EQ(resumed(step(1) + zeros + "oss\": 1}\n" + step(3) + step(4) + epoch(2) + epoch(3)),
            step(1) + step(3) + step(4) + epoch(2) + epoch(3));
  EXPECT_EQ(log_, path_.string() +
                      ": 1 line that cannot be read was removed; the record of epoch 1 is missing: the file "
                      "was damaged, shortened or removed while the run was stopped\n");
}

TEST_F(DamagedRecords, ReportsAMissingFile) {
  EXPECT_EQ(resumed(""), epoch(3));
  EXPECT_EQ(log_, path_.string() +
                      ": the records of 2 epochs are missing, the first is epoch 1: the file was damaged, "
                      "shortened or removed while the run was stopped\n");
}

TEST_F(DamagedRecords, KeepsLinesOfSomebodyElse) {
  const std::string note = "{\"note\": \"from me\"}\n", records = epoch(1) + epoch(2);
  EXPECT_EQ(resumed(epoch(1) + note + epoch(2) + step(5) + note), epoch(1) + note + epoch(2) + epoch(3));
  EXPECT_EQ(log_, "");
}

}  // namespace
}  // namespace kindling
