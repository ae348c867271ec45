// How columns of a file become those of a table: new names, marks of missing values by column, units, and
// values that cannot be converted.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "data/file_test.h"
#include "kindling/base/error.h"
#include "kindling/data/input_transform.h"
#include "kindling/data/table_data.h"
#include "support/log_lines.h"

namespace kindling {
namespace {

using Numbers = std::vector<double>;

class TableColumnsFile : public FileTest {
 protected:
  TableData table(TableDataOptions options) {
    if (options.target.empty()) options.target = {"y"};
    return TableData(std::move(options), {.shuffle = false});
  }
  // A column of the raw inputs; missing values are -777.
  static Numbers column(const std::shared_ptr<DataLoader>& loader, std::int64_t index) {
    const at::Tensor raw = loader->dataset().slice(0, loader->dataset().size()).tensors()[0];
    const at::Tensor values = raw.select(1, index).nan_to_num(-777).contiguous();
    return {values.const_data_ptr<double>(), values.const_data_ptr<double>() + values.numel()};
  }
};

TEST_F(TableColumnsFile, TakesAMarkOfAMissingValueInItsColumnOnly) {
  for (const auto& [name, text] : std::vector<std::pair<std::string, std::string>>{
           {"t.csv", "age,debt,y\n-1,-1,1\n30,-1,2\nx,5,3\n"},
           {"t.jsonl",
            "{\"age\": -1, \"debt\": -1, \"y\": 1}\n{\"age\": 30, \"debt\": -1, \"y\": 2}\n"
            "{\"age\": \"x\", \"debt\": 5, \"y\": 3}\n"}}) {
    TableDataOptions options{.file = write(name, text)};
    options.na_values.by_name["age"] = {"-1", "x"};
    TableData data = table(options);
    EXPECT_EQ(column(data.train_dataloader(), 0), (Numbers{-777, 30, -777})) << name;
    EXPECT_EQ(column(data.train_dataloader(), 1), (Numbers{-1, -1, 5})) << name;
  }
}

TEST_F(TableColumnsFile, NamesAColumnOfMarksThatTheFileLacks) {
  TableDataOptions options{.file = write("t.csv", "age,y\n1,1\n")};
  options.na_values.by_name["agee"] = {"-1"};
  EXPECT_EQ(message([&] { table(options).prepare(); }),
            "data.na_values.agee: t.csv has no column 'agee'; expected: one of age, y; did you mean 'age'?");
}

TEST_F(TableColumnsFile, RenamesColumnsForAllOtherKeys) {
  for (const auto& [name, text] : std::vector<std::pair<std::string, std::string>>{
           {"t.csv", "No. of rooms,n,y\n3,a,1\n4,b,2\n"},
           {"t.jsonl",
            "{\"No. of rooms\": 3, \"n\": \"a\", \"y\": 1}\n{\"No. of rooms\": 4, \"n\": \"b\", \"y\": "
            "2}\n"}}) {
    TableData data = table({.file = write(name, text),
                            .target = {"price"},
                            .features = {"rooms"},
                            .id = "row",
                            .rename = {{"No. of rooms", "rooms"}, {"y", "price"}, {"n", "row"}}});
    EXPECT_EQ(column(data.train_dataloader(), 0), (Numbers{3, 4})) << name;
    EXPECT_EQ(data.schema().features[0].name, "rooms");
    EXPECT_EQ(data.schema().targets[0], "price");
  }
}

TEST_F(TableColumnsFile, NamesColumnsWithoutAHeader) {
  TableData plain = table({.file = write("n.csv", "1,2\n4,5\n"),
                           .features = {"a"},
                           .header = false,
                           .rename = {{"c1", "a"}, {"c2", "y"}}});
  EXPECT_EQ(column(plain.train_dataloader(), 0), (Numbers{1, 4}));
}

TEST_F(TableColumnsFile, ReadsOtherFilesWithOldOrNewNames) {
  TableData data = table({.file = write("t.csv", "old,y\n1,2\n3,4\n"), .rename = {{"old", "new"}}});
  data.prepare();
  for (const char* const header : {"old", "new"}) {
    TableData other = table({.file = "none.csv", .rename = {{"old", "new"}}});
    other.restore_input_transform(data.schema().text());
    other.predict_from(write("p.csv", std::string(header) + "\n7\n"));
    EXPECT_EQ(column(other.predict_dataloader(), 0), Numbers{7}) << header;
  }
}

TEST_F(TableColumnsFile, RefusesKeysThatBecomeOneColumn) {
  const std::string file = write("t.jsonl", "{\"a\": 1, \"y\": 1}\n{\"b\": 2, \"y\": 2}\n");
  EXPECT_EQ(message([&] {
              table({.file = file, .rename = {{"a", "b"}}}).prepare();
            }),
            "t.jsonl, row 2 (line 2), column 'b': the file also has the key 'a' for this column, see "
            "data.rename; expected: one key for each column");
}

TEST_F(TableColumnsFile, RefusesNamesThatDoNotFit) {
  const auto refusal = [&](const TextMap& rename) {
    return message([&] { table({.file = write("t.csv", "a,b,y\n1,2,3\n"), .rename = rename}).prepare(); });
  };
  EXPECT_EQ(refusal({{"aa", "c"}}),
            "t.csv: no column has the name 'aa'; expected: one of a, b, y; did you mean 'a'?");
  EXPECT_EQ(refusal({{"a", "b"}}),
            "t.csv, header: two columns have the name 'b'; expected: distinct names; rename one of them");
  EXPECT_EQ(refusal({{"a", "c"}, {"b", "c"}}),
            "data.rename: two columns become 'c'; expected: distinct names");
  EXPECT_EQ(refusal({{"a", "b"}, {"b", "a"}}),
            "data.rename: the new name 'a' is also an old one; expected: new names that are not renamed");
  EXPECT_EQ(refusal({{"a", ""}}), "data.rename: an empty name; expected: distinct names");
}

constexpr const char* kGoods =
    "weight,share,price,fee,area,name,time,y\n"
    "12 kg,78.4%,\"$5,377.19\",CHF 2,4 m2,user12,12:30,1\n"
    "1.5kg,-3%,-$12,CHF -1,5 m2,user13,13:30,2\n"
    ",5 %,$7.5,CHF 1e2,6m2,user14,14:30,3\n";

TEST_F(TableColumnsFile, ReadsNumbersWithTheirUnits) {
  TableData data = table({.file = write("t.csv", kGoods), .units = true});
  const auto loader = data.train_dataloader();
  EXPECT_EQ(column(loader, 0), (Numbers{12, 1.5, -777}));
  EXPECT_EQ(column(loader, 1), (Numbers{78.4, -3, 5}));
  EXPECT_EQ(column(loader, 2), (Numbers{5377.19, -12, 7.5}));
  EXPECT_EQ(column(loader, 3), (Numbers{2, -1, 100}));
  EXPECT_EQ(column(loader, 4), (Numbers{4, 5, 6}));
  EXPECT_EQ(data.schema().features[5].kind, ColumnKind::category) << "user12 is a name";
  EXPECT_EQ(data.schema().features[6].kind, ColumnKind::category) << "12:30 is a time";
  EXPECT_NE(data.schema().text().find(R"("weight":{"prefix":"","suffix":"kg"})"), std::string::npos);
  EXPECT_NE(data.schema().text().find(R"("price":{"prefix":"$","suffix":"","groups":true})"),
            std::string::npos);
  TableData without = table({.file = write("t.csv", kGoods)});
  without.prepare();
  EXPECT_EQ(without.schema().features[0].kind, ColumnKind::category);
}

TEST_F(TableColumnsFile, KeepsColumnsOfSeveralUnits) {
  TableData data =
      table({.file = write("t.csv", "a,b,c,y\n1 kg,1 kg,\"1,234 kg\",1\n2 g,2 kg,2 kg,2\n3 g,,3 kg,3\n"),
             .categories = {"b"},
             .units = true});
  data.prepare();
  EXPECT_EQ(data.schema().features[0].kind, ColumnKind::category) << "two units";
  EXPECT_EQ(data.schema().features[1].kind, ColumnKind::category) << "declared";
  EXPECT_EQ(data.schema().features[2].kind, ColumnKind::category) << "1,234 may be 1.234";
}

TEST_F(TableColumnsFile, NamesTheFewTextsThatKeepAColumnFromItsUnit) {
  const auto rows = [](int count) {
    std::string text = "x,y\n?,0\n";
    for (int i = 1; i < count; ++i) text += std::to_string(i) + " kg," + std::to_string(i) + "\n";
    return text;
  };
  const auto warnings = [&](const std::string& text) {
    const LogLines log;
    table({.file = write("t.csv", text), .units = true}).prepare();
    return log.texts;
  };
  const std::vector<std::string> found = warnings(rows(10));
  EXPECT_EQ(std::ranges::count(found, (scratch_ / "t.csv").string() +
                                          ", column 'x': data.units cannot read it as numbers because of "
                                          "\"?\"; if this marks a missing value, list it in data.na_values"),
            1);
  for (const std::string& text : warnings(rows(9)))
    EXPECT_EQ(text.find("data.units"), std::string::npos) << text;
}

TEST_F(TableColumnsFile, KeepsTextsThatAreMoreThanANumberWithAUnit) {
  for (const char* const text :
       {"(5)",    "($5)",   "1 000",       "25 000 kg", "1\u00a0000 €", "3 1/2",  "5 to 10",
        "5±2 kg", "9h30",   "12 Nov 2025", "USD.500",   "<5",           ">5 mg",  "~5",
        "#1001",  "SKU001", "А12",         "--5 kg",    "\u22125 kg",   "+49 170"}) {
    std::string rows;
    for (int i = 0; i < 3; ++i) rows += std::string(text) + "," + std::to_string(i) + "\n";
    TableData data = table({.file = write("t.csv", "x,y\n" + rows), .units = true});
    data.prepare();
    EXPECT_EQ(data.schema().features[0].kind, ColumnKind::category) << text;
  }
}

TEST_F(TableColumnsFile, ReadsUnitsInJsonLinesWithADecimalPoint) {
  TableData data = table({.file = write("t.csv", "x;y\n5,5 kg;1\n1.006,5 kg;2\n"),
                          .thousands = ".",
                          .decimal = ",",
                          .units = true});
  EXPECT_EQ(column(data.train_dataloader(), 0), (Numbers{5.5, 1006.5}));
  data.predict_from(write("p.jsonl", "{\"x\": \"1.25 kg\"}\n"));
  EXPECT_EQ(column(data.predict_dataloader(), 0), Numbers{1.25});
}

TEST_F(TableColumnsFile, HasNoClassesOfOmittedRows) {
  TableData data({.file = write("t.csv", "d,k\n2026-01-01,a\n2026-01-02,b\nnever,zzz\n"),
                  .label = "k",
                  .dates = {"d"},
                  .on_broken = "skip"});
  data.prepare();
  EXPECT_EQ(data.class_names(), (std::vector<std::string>{"a", "b"}));
}

TEST_F(TableColumnsFile, PredictsNumbersWithAUnit) {
  TableData data = table({.file = write("t.csv", "x,y\n1,$10\n2,\"$1,000.50\"\n"), .units = true});
  const Batch batch = data.train_dataloader()->dataset().slice(0, 2);
  EXPECT_TRUE(batch.tensors()[1].equal(at::tensor({10.F, 1000.5F}).unsqueeze(1)));
}

TEST_F(TableColumnsFile, RefusesOtherUnitsInOtherFiles) {
  TableData data = table({.file = write("t.csv", "weight,y\n1 kg,1\n2 kg,2\n"), .units = true});
  data.prepare();
  const auto predict = [&](const std::string& rows) {
    TableData other = table({.file = "none.csv"});
    other.restore_input_transform(data.schema().text());
    other.predict_from(write("p.csv", "weight\n" + rows));
    return column(other.predict_dataloader(), 0);
  };
  EXPECT_EQ(predict("3 kg\n4kg\nNA\n"), (Numbers{3, 4, -777}));
  EXPECT_EQ(
      message([&] { predict("3 kg\n300 g\n400 g\n5\n"); }),
      "p.csv, row 2, column 'weight': '300 g', and 2 similar ones; expected: a number with 'kg', as in the "
      "training file; convert it to this unit");
}

// Wrong dates, units and times are rows that cannot be read, as a text among numbers is.
TEST_F(TableColumnsFile, SkipsRowsWithWrongDatesAndUnits) {
  const std::string text =
      "sold,at,x,y\n"
      "2026-01-01,2026-01-01,1,1\n"
      "soon,2026-01-02,2,2\n"
      "2026-01-03,2026-01-03,3,3\n"
      "2026-01-04,never,4,4\n"
      "2026-01-05,2026-01-05,5,5\n";
  TableDataOptions options{
      .file = write("t.csv", text), .val_fraction = 0.34, .split = "time", .time = "at", .on_broken = "skip"};
  options.dates = {"sold"};
  const LogLines log;
  TableData data = table(options);
  EXPECT_EQ(column(data.train_dataloader(), 0), (Numbers{1, 3}));
  ASSERT_EQ(data.skipped_samples().size(), 2U);
  EXPECT_NE(data.skipped_samples()[0].find("t.csv, row 2, column 'sold': 'soon' is not a date"),
            std::string::npos);
  EXPECT_NE(data.skipped_samples()[1].find("t.csv, row 4, column 'at': 'never' is not a time"),
            std::string::npos);
  options.on_broken = "stop";
  EXPECT_NE(message([&] { table(options).prepare(); }).find("'soon' is not a date"), std::string::npos);
}

TEST_F(TableColumnsFile, ListsTheWrongDatesOfAllColumns) {
  TableDataOptions options{.file = write("t.csv", "a,b,y\n2026-01-01,x,1\nx,2026-01-01,2\nz,2026-01-01,3\n")};
  options.dates = {"a", "b"};
  const std::string wanted =
      "; expected: a date such as 2026-11-29 or 2026-11-29T15:30:00Z; correct it, or remove the column from "
      "data.dates";
  EXPECT_EQ(message([&] { table(options).prepare(); }),
            "t.csv, row 2, column 'a': 'x' is not a date, and 1 similar one" + wanted +
                "\nt.csv, row 1, column 'b': 'x' is not a date" + wanted);
}

TEST_F(TableColumnsFile, ListsTheWrongValuesOfSeveralFiles) {
  const auto file = write("t.csv", "x,y\n1,1\n?,2\n3,3\n");
  const auto val = write("v.csv", "x,y\n1,1\n2,2\n-,3\n");
  const auto test = write("u.csv", "x,y\n1,1\n2,2\n3,none\n");
  TableData all = table({.file = file, .test_file = test, .val_files = {val}});
  const std::string error = message([&] { all.prepare(); });
  EXPECT_NE(error.find("t.csv, row 2 (line 3), column 'x': \"?\""), std::string::npos) << error;
  EXPECT_NE(error.find("\nv.csv, row 3 (line 4), column 'x': \"-\""), std::string::npos) << error;
  EXPECT_NE(error.find("\nu.csv, row 3 (line 4), column 'y': \"none\""), std::string::npos) << error;
  write("t.csv", "x,y\n1,1\n2,2\n3,3\n");
  TableData others = table({.file = file, .test_file = test, .val_files = {val}});
  const std::string of_others = message([&] { others.prepare(), others.val_dataloader(); });
  EXPECT_TRUE(of_others.starts_with("v.csv, row 3 (line 4), column 'x': \"-\"")) << of_others;
  EXPECT_NE(of_others.find("\nu.csv, row 3 (line 4), column 'y': \"none\""), std::string::npos) << of_others;
}

}  // namespace
}  // namespace kindling
