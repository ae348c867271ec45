#include "kindling/base/error.h"

#include <gtest/gtest.h>

namespace kindling {
namespace {

TEST(Error, ShowsItsFourPartsInOneLine) {
  const DataError error({.place = "a.idx, byte 2",
                         .found = "type code 7 is unknown",
                         .wanted = "8 or 9",
                         .remedy = "get the file again"});
  EXPECT_STREQ(error.what(), "a.idx, byte 2: type code 7 is unknown; expected: 8 or 9; get the file again");
  EXPECT_EQ(error.parts().wanted, "8 or 9");
}

TEST(Error, OmitsEmptyParts) {
  EXPECT_STREQ(Error({.place = "", .found = "no disk", .wanted = "", .remedy = "add one"}).what(),
               "no disk; add one");
  EXPECT_STREQ(Error({.found = "2 errors, nothing was run"}).what(), "2 errors, nothing was run");
}

TEST(Error, IsTheBaseOfEveryKind) {
  EXPECT_THROW(throw ConfigError({.found = "x"}), Error);
  EXPECT_THROW(throw DataError({.found = "x"}), Error);
  EXPECT_THROW(throw CheckpointError({.found = "x"}), Error);
  EXPECT_THROW(throw DeviceError({.found = "x"}), Error);
}

}  // namespace
}  // namespace kindling
