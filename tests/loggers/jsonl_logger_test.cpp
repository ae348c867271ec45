#include "kindling/loggers/jsonl_logger.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kindling/base/file.h"
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

}  // namespace
}  // namespace kindling
