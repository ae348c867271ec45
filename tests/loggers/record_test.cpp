#include "kindling/loggers/record.h"

#include <gtest/gtest.h>

#include "kindling/loggers/memory_logger.h"

namespace kindling {
namespace {

TEST(Record, FindsValuesByName) {
  const Record record = {
      .kind = Record::Kind::epoch, .global_step = 1, .epoch = 1, .values = {{"a", 1}, {"b", 2}}};
  ASSERT_NE(record.find("b"), nullptr);
  EXPECT_EQ(*record.find("b"), 2);
  EXPECT_EQ(record.find("c"), nullptr);
}

TEST(MemoryLogger, KeepsAllRecordsInOrder) {
  MemoryLogger logger;
  logger.write({.kind = Record::Kind::step, .global_step = 1, .epoch = 1, .values = {{"a", 1}}});
  logger.write({.kind = Record::Kind::epoch, .global_step = 2, .epoch = 1, .values = {}});
  ASSERT_EQ(logger.records().size(), 2u);
  EXPECT_EQ(*logger.records()[0].find("a"), 1);
  EXPECT_EQ(logger.records()[1].kind, Record::Kind::epoch);
}

}  // namespace
}  // namespace kindling
