#include "kindling/formats/table_schema.h"

#include <gtest/gtest.h>

#include <string>

#include "kindling/base/error.h"

namespace kindling {
namespace {

const TableSchema kHouses{
    .features = {{.name = "rooms"},
                 {.name = "city",
                  .kind = ColumnKind::category,
                  .categories = {"", "Bern, \"old\""},
                  .is_declared = true},
                 {.name = "heating", .kind = ColumnKind::category, .categories = {"gas"}}},
    .targets = {"price", "rent"},
    .id = "row"};

constexpr const char* kHousesText =
    R"({"version":3,"features":[{"name":"rooms","kind":"number"},{"name":"city","kind":"category",)"
    R"("categories":["","Bern, \"old\""],"declared":true},{"name":"heating","kind":"category",)"
    R"("categories":["gas"]}],"targets":["price","rent"],"id":"row"})";

TEST(TableSchema, IsWrittenAsJson) {
  EXPECT_EQ(kHouses.text(), kHousesText);
  const TableSchema flowers{
      .features = {{.name = "length"}}, .label = "species", .classes = {"setosa", "virginica"}};
  EXPECT_EQ(flowers.text(),
            R"({"version":3,"features":[{"name":"length","kind":"number"}],"label":"species",)"
            R"("classes":["setosa","virginica"]})");
}

TEST(TableSchema, IsReadBack) {
  EXPECT_EQ(TableSchema::parse(kHousesText, "file").text(), kHousesText);
  EXPECT_EQ(TableSchema::parse(kHousesText, "file").num_encoded(), 4U);
}

TEST(TableSchema, NamesColumnsOfBooleansAndIntegers) {
  const TableSchema flags{.features = {{.name = "x"}}, .label = "f", .booleans = {"f"}, .integers = {"id"}};
  EXPECT_EQ(flags.text(),
            R"({"version":3,"features":[{"name":"x","kind":"number"}],"label":"f","classes":[],)"
            R"("booleans":["f"],"integers":["id"]})");
  EXPECT_EQ(TableSchema::parse(flags.text(), "file").text(), flags.text());
}

TEST(TableSchema, KeepsEveryDigitOfAnOffset) {
  const double offset = 1700000299.123456;
  const TableSchema times{.features = {{.name = "time", .offset = offset}, {.name = "x"}}, .targets = {"y"}};
  EXPECT_EQ(times.text(),
            R"({"version":3,"features":[{"name":"time","kind":"number","offset":1700000299.123456},)"
            R"({"name":"x","kind":"number"}],"targets":["y"]})");
  const TableSchema read = TableSchema::parse(times.text(), "file");
  EXPECT_EQ(read.features[0].offset, offset);
  EXPECT_FALSE(read.features[1].offset.has_value());
  EXPECT_TRUE(read.has_offsets());
  EXPECT_FALSE(kHouses.has_offsets());
}

// The numbers of such models were rounded to float32 before they were scaled.
TEST(TableSchema, RemembersADescriptionOfVersionOne) {
  constexpr const char* kText = R"({"version":1,"features":[{"name":"x","kind":"number"}],"targets":["y"]})";
  const TableSchema read = TableSchema::parse(kText, "file");
  EXPECT_FALSE(read.scales_in_double);
  EXPECT_EQ(read.text(), kText);
  EXPECT_TRUE(TableSchema::parse(kHousesText, "file").scales_in_double);
}

// Their booleans are the texts of the file.
TEST(TableSchema, RemembersADescriptionOfVersionTwo) {
  constexpr const char* kText = R"({"version":2,"features":[{"name":"x","kind":"number"}],"targets":["y"]})";
  const TableSchema read = TableSchema::parse(kText, "file");
  EXPECT_TRUE(read.scales_in_double);
  EXPECT_FALSE(read.unifies_values);
  EXPECT_EQ(read.text(), kText);
  EXPECT_TRUE(TableSchema::parse(kHousesText, "file").unifies_values);
}

TEST(TableSchema, ReadsItsColumnsOnlyAndInTheirKinds) {
  const Table table =
      parse_table("note,heating,city,rooms\nx,,,3\ny,12,NA,NA\n", "t.csv", kHouses.table_options());
  ASSERT_EQ(table.columns.size(), 3U);
  EXPECT_EQ(table.find("note"), nullptr);
  EXPECT_EQ(table.find("rooms")->kind, ColumnKind::number);
  EXPECT_EQ(table.find("heating")->codes, (std::vector<std::int32_t>{-1, 0}));  // empty: missing
  EXPECT_EQ(table.find("heating")->categories, (std::vector<std::string>{"12"}));
  EXPECT_EQ(table.find("city")->codes, (std::vector<std::int32_t>{0, -1}));  // empty: a category
}

std::string message(const std::string& text) {
  try {
    TableSchema::parse(text, "file");
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "no error";
}

TEST(TableSchema, RefusesOtherTexts) {
  EXPECT_EQ(message(R"({"version":4})"),
            "file.version: 4; expected: 1, 2 or 3; use the version of Kindling that wrote it");
  const std::string offset =
      "; expected: an offset of a column of numbers, in a description of version 2 or later";
  EXPECT_EQ(message(R"({"version":1,"features":[{"name":"a","kind":"number","offset":1}]})"),
            "file.features[0].offset: an offset" + offset);
  EXPECT_EQ(
      message(R"({"version":2,"features":[{"name":"a","kind":"category","categories":["x"],"offset":1}]})"),
      "file.features[0].offset: an offset" + offset);
  EXPECT_EQ(message(R"({"version":2,"features":[{"name":"a","kind":"number","offset":"NaN"}]})"),
            "file.features[0].offset: it is not finite; expected: a finite number");
  EXPECT_EQ(message(R"({"version":1,"features":[]})"),
            "file.features: an empty list; expected: at least one column");
  EXPECT_EQ(message(R"({"version":1,"features":[{"name":"a","kind":"date"}]})"),
            "file.features[0].kind: 'date'; expected: number or category");
  EXPECT_EQ(
      message(R"({"version":1,"features":[{"name":"a","kind":"number"},{"name":"a","kind":"number"}]})"),
      "file.features: two columns have the same name; expected: distinct names");
  EXPECT_EQ(message(R"({"version":1,"features":[{"name":"a","kind":"category","categories":["x","x"]}]})"),
            "file.features[0].categories: a text occurs twice; expected: distinct texts");
  EXPECT_EQ(
      message(R"({"version":1,"features":[{"name":"a","kind":"category","categories":["y","x"]}]})"),
      "file.features[0].categories: the texts are not sorted; expected: texts that are sorted bytewise");
}

}  // namespace
}  // namespace kindling
