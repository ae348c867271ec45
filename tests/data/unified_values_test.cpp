// One meaning of a value in every format: tables as pandas, polars and R write the same rows.
#include "data/sources/unified_values.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "kindling/data/input_transform.h"
#include "kindling/data/table_data.h"
#include "support/log_lines.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

using Texts = std::vector<std::string>;

TEST(UnifiedTexts, HasOneTextForEachMeaning) {
  EXPECT_EQ(unified_texts({"True", "FALSE", "true"}), (Texts{"true", "false", "true"}));
  EXPECT_EQ(unified_texts({"3.0", "-1.0", "10.0", "3"}), (Texts{"3", "-1", "10", "3"}));
  for (const Texts& others :
       {Texts{"True", "yes"}, Texts{"3.0", "x"}, Texts{"3.0", "2.5"}, Texts{"3.00"}, Texts{"01", "1.0"},
        Texts{"-0", "1.0"}, Texts{"tRUE"}, Texts{"-.0"}, Texts{"+1.0"}, Texts{}})
    EXPECT_EQ(unified_texts(others), others);
}

TEST(UnifiedTexts, AreSortedCategories) {
  TableColumn column{.name = "x",
                     .kind = ColumnKind::category,
                     .codes = {0, 1, -1, 2, 3},
                     .categories = {"FALSE", "True", "false", "true"}};
  unify_values(column);
  EXPECT_EQ(column.categories, (Texts{"false", "true"}));
  EXPECT_EQ(column.codes, (std::vector<std::int32_t>{0, 1, -1, 0, 1}));
}

class UnifiedTable : public testing::Test {
 protected:
  // `garden` as R, pandas and polars write booleans; `kind` as pandas writes integers with a missing value.
  std::filesystem::path write(const std::string& name, const std::string& text) {
    write_text(scratch_ / name, text);
    return scratch_ / name;
  }
  std::filesystem::path of_pandas() {
    return write("pandas.csv", "id,garden,kind\n7.0,True,1.0\n8.0,False,2.0\n9.0,True,10.0\n,False,\n");
  }
  static at::Tensor rows_in(const std::shared_ptr<DataLoader>& loader, std::size_t tensor = 0) {
    return loader->dataset().slice(0, loader->dataset().size())[tensor];
  }
  Scratch scratch_;
};

TEST_F(UnifiedTable, HasTheSameRowsInEachFormat) {
  const Texts files{
      of_pandas().string(),
      write("r.csv", "id,garden,kind\n7,TRUE,1\n8,FALSE,2\n9,TRUE,10\n,FALSE,\n").string(),
      write("polars.jsonl",
            "{\"id\": 7, \"garden\": true, \"kind\": 1}\n{\"id\": 8, \"garden\": false, "
            "\"kind\": 2}\n{\"id\": 9, \"garden\": true, \"kind\": 10}\n"
            "{\"garden\": false, \"kind\": null}\n")
          .string(),
      write("mixed.csv", "id,garden,kind\n7,TRUE,1.0\n8,false,2\n9,true,10\n,False,\n").string()};
  LogLines log;  // about the row without a class
  for (const std::string& file : files) {
    TableData data({.file = file, .label = "kind", .id = "id"}, {.shuffle = false});
    data.prepare();
    EXPECT_EQ(data.schema().features[0].categories, (Texts{"false", "true"})) << file;
    EXPECT_EQ(data.schema().classes, (Texts{"1", "2", "10"})) << file;
    EXPECT_TRUE(same(rows_in(data.train_dataloader()), at::tensor({1., 0., 1.}, at::kDouble).view({3, 1})));
    EXPECT_TRUE(same(rows_in(data.train_dataloader(), 1), at::tensor({0, 1, 2}, at::kLong)));
    for (const std::string& other : files) {
      TableData predicted({.file = file, .label = "kind", .id = "id"});
      predicted.restore_input_transform(data.schema().text());
      predicted.predict_from(other);
      EXPECT_TRUE(same(rows_in(predicted.predict_dataloader()),
                       at::tensor({1., 0., 1., 0.}, at::kDouble).view({4, 1})))
          << file << " and " << other;
      EXPECT_EQ(predicted.predict_ids().values, (Texts{"7", "8", "9", ""})) << file << " and " << other;
    }
  }
  for (const std::string& text : log.texts)
    EXPECT_EQ(text.find("categories that the"), std::string::npos) << text;
}

TEST_F(UnifiedTable, KeepsTheTextsOfDeclaredColumns) {
  LogLines log;
  TableData data({.file = of_pandas(), .label = "kind", .categories = {"garden", "kind"}, .id = "id"});
  data.prepare();
  EXPECT_EQ(data.schema().features[0].categories, (Texts{"False", "True"}));
  EXPECT_EQ(data.schema().classes, (Texts{"", "1.0", "10.0", "2.0"}));
}

// The whole training file decides about a column, and every later file is read alike.
TEST_F(UnifiedTable, ReadsAFileAgainAsAtTheFit) {
  LogLines log;
  const std::string lines =
      "{\"flag\": \"True\", \"k\": \"3.0\", \"y\": 1, \"id\": \"7.0\"}\n"
      "{\"flag\": \"False\", \"k\": \"4\", \"y\": 2, \"id\": \"8.0\"}\n"
      "{\"flag\": \"True\", \"k\": \"3\", \"y\": 3, \"id\": \"9.0\"}\n";
  const auto raw_and_ids = [&](const std::string& text) {
    const auto file = write("t.jsonl", text);
    // The last row is for validation.
    TableData data({.file = file, .target = {"y"}, .id = "id"}, {.shuffle = false, .val = {{2, 3}}});
    data.prepare();
    const at::Tensor all =
        at::cat({rows_in(data.train_dataloader()), rows_in(data.val_dataloader())}).nan_to_num(-7);
    TableData again({.file = file, .target = {"y"}, .id = "id"});
    again.restore_input_transform(data.schema().text());
    again.predict_from(file);
    EXPECT_TRUE(same(rows_in(again.predict_dataloader()).nan_to_num(-7), all)) << all;
    return std::pair(all, again.predict_ids().values);
  };
  const auto [same_kinds, ids] = raw_and_ids(lines);
  EXPECT_TRUE(same(same_kinds, at::tensor({1., 0., 0., 1., 1., 0.}, at::kDouble).view({3, 2})));
  EXPECT_EQ(ids, (Texts{"7", "8", "9"}));
  std::string others = lines;
  others.replace(others.rfind("True"), 4, "maybe");
  others.replace(others.rfind("\"3\""), 3, "\"x\"");
  others.replace(others.rfind("9.0"), 3, "b");
  const auto [other_kinds, other_ids] = raw_and_ids(others);
  EXPECT_TRUE(same(other_kinds, at::tensor({1., 0., 0., 1., -1., -1.}, at::kDouble).view({3, 2})));
  EXPECT_EQ(other_ids, (Texts{"7.0", "8.0", "b"}));
}

// A run of a former version has the texts of its file.
TEST_F(UnifiedTable, KeepsTheMeaningOfSavedRuns) {
  LogLines log;
  constexpr const char* kFormer =
      R"({"version":2,"features":[{"name":"garden","kind":"category","categories":["False","True"]}],)"
      R"("label":"kind","classes":["1.0","2.0","10.0"],"id":"id"})";
  TableData saved({.file = of_pandas(), .label = "kind", .id = "id"});
  saved.restore_input_transform(kFormer);
  saved.predict_from(write("new.csv", "id,garden\n1.0,true\n2.0,True\n"));
  EXPECT_TRUE(
      same(rows_in(saved.predict_dataloader()), at::tensor({-1., 1.}, at::kDouble).view({2, 1})));  // unknown
  EXPECT_EQ(saved.predict_ids().values, (Texts{"1.0", "2.0"}));
  EXPECT_EQ(saved.class_names(), (Texts{"1.0", "2.0", "10.0"}));
  // It resumes on its file, but not on one whose codes have another order.
  TableData resumed({.file = of_pandas(), .label = "kind", .id = "id"});
  resumed.prepare();
  EXPECT_TRUE(resumed.input_transform()->adopt(kFormer));
  EXPECT_EQ(resumed.schema().text(), kFormer);
  TableData other({.file = of_pandas(), .label = "kind", .id = "id"});
  other.prepare();
  EXPECT_FALSE(other.input_transform()->adopt(
      R"({"version":2,"features":[{"name":"garden","kind":"category","categories":["TRUE","false"]}],)"
      R"("label":"kind","classes":["1.0","2.0","10.0"],"id":"id"})"));
}

}  // namespace
}  // namespace kindling
