// Numbers in a state's metadata.
#include "tensors/saved_number.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kindling/base/error.h"
#include "support/scratch.h"

namespace kindling {
namespace {

TEST(SavedNumber, ReadsIntegersAndDoubles) {
  const Metadata saved{{"count", "-12"}, {"rate", "2.5e-3"}, {"best", "-inf"}, {"latest", "nan"}};
  EXPECT_EQ(number_of<std::int64_t>(saved, "count"), -12);
  EXPECT_EQ(number_of<double>(saved, "rate"), 2.5e-3);
  EXPECT_EQ(number_of<double>(saved, "best"), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(number_of<double>(saved, "latest")));
}

TEST(SavedNumber, AcceptsBothEndsOfItsRange) {
  for (const std::string text : {"1", "3"})
    EXPECT_EQ(number_of<std::int64_t>({{"n", text}}, "n", {.min = 1, .max = 3}), std::stoll(text));
}

TEST(SavedNumber, ErrorNamesKeyTextAndExpectation) {
  const std::string remedy = "; use another checkpoint: this one is damaged or was edited";
  EXPECT_EQ(error_text<CheckpointError>([] {
              number_of<std::int64_t>({{"epoch", "1x"}}, "epoch");
            }),
            "saved value 'epoch': '1x'; expected: an integer" + remedy);
  EXPECT_EQ(error_text<CheckpointError>([] { number_of<double>({}, "rate"); }),
            "saved value 'rate': it is missing; expected: a number" + remedy);
  EXPECT_EQ(error_text<CheckpointError>([] {
              number_of<std::int64_t>({{"n", "-1"}}, "n", {.min = 0});
            }),
            "saved value 'n': '-1'; expected: an integer of at least 0" + remedy);
  EXPECT_EQ(error_text<CheckpointError>([] {
              number_of<double>({{"n", "nan"}}, "n", {.min = 0.5, .max = 2});
            }),
            "saved value 'n': 'nan'; expected: a number from 0.5 to 2" + remedy);
}

TEST(SavedNumber, RefusesTextsThatAreNotNumbersFromEndToEnd) {
  for (const std::string text : {"", " 1", "1 ", "+1", "0x1", "1.5", "one", "9223372036854775808"})
    EXPECT_THROW(number_of<std::int64_t>({{"n", text}}, "n"), CheckpointError) << text;
  for (const std::string text : {"", "1e", "1,5", "1e999"})
    EXPECT_THROW(number_of<double>({{"n", text}}, "n"), CheckpointError) << text;
}

TEST(SavedNumber, FindReturnsNothingForAMissingKeyOnly) {
  EXPECT_EQ(find_number<double>({}, "rate"), std::nullopt);
  EXPECT_THROW(find_number<double>({{"rate", "fast"}}, "rate"), CheckpointError);
}

}  // namespace
}  // namespace kindling
