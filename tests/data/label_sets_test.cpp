// Tables whose cells have several labels, such as "cat|dog".
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "data/file_test.h"
#include "data/sources/table_labels.h"
#include "kindling/base/error.h"
#include "kindling/data/table_data.h"
#include "kindling/models/mlp.h"
#include "kindling/models/mlp_regressor.h"
#include "support/log_lines.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

constexpr const char* kScenes =
    "x,tags\n"
    "1,dog|cat\n"
    "2,\n"
    "3, bird | cat|cat|\n"
    "4,dog\n"
    "5,NA\n";

class SeveralLabels : public FileTest {
 protected:
  TableData scenes(TableDataOptions options = {}, DataOptions shared = {}) {
    if (options.file.empty()) options.file = write("scenes.csv", kScenes);
    options.label = "tags";
    if (options.label_separator.empty()) options.label_separator = "|";
    shared.shuffle = false;
    return TableData(options, shared);
  }
  static Batch first(const std::shared_ptr<DataLoader>& loader) {
    Batch batch;
    loader->start_epoch(0);
    loader->next(batch);
    return batch;
  }
  static at::Tensor bytes(std::vector<std::int64_t> values, std::int64_t width) {
    return at::tensor(values, at::kLong).view({-1, width}).to(at::kByte);
  }
  std::vector<std::string> log_of(const std::function<void()>& call, LogLevel level = LogLevel::warning) {
    LogLines log(level);
    call();
    for (std::string& text : log.texts) text = without_folder(text);
    return log.texts;
  }
};

TEST_F(SeveralLabels, AreZerosAndOnesOfTheSortedClasses) {
  TableData data = scenes();
  const std::vector<std::string> log = log_of([&] { data.prepare(); }, LogLevel::info);
  EXPECT_EQ(data.class_names(), (std::vector<std::string>{"bird", "cat", "dog"}));
  EXPECT_TRUE(same(first(data.train_dataloader())[1], bytes({0, 1, 1,  //
                                                             0, 0, 0,  //
                                                             1, 1, 0,  //
                                                             0, 0, 1,  //
                                                             0, 0, 0},
                                                            3)));
  EXPECT_EQ(log,
            std::vector<std::string>{"scenes.csv: 2 of 5 rows have no label, which is 0 for every class"});
}

TEST_F(SeveralLabels, AreSplitAsTheSeparatorSays) {
  const auto labels = [](const char* text, const char* separator) { return labels_in_text(text, separator); };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(labels("a|b", "|"), (Texts{"a", "b"}));
  EXPECT_EQ(labels("b, a ,b", ","), (Texts{"b", "a"}));
  EXPECT_EQ(labels("a  b c", " "), (Texts{"a", "b", "c"}));
  EXPECT_EQ(labels("a;;b;", ";"), (Texts{"a", "b"}));
  EXPECT_EQ(labels("New York::Bern", "::"), (Texts{"New York", "Bern"}));
  EXPECT_EQ(labels(" | ", "|"), Texts{});
  EXPECT_EQ(labels("a|b", ";"), Texts{"a|b"});
}

// 10 comes after 9, and 2 and 2.0 are one number.
TEST_F(SeveralLabels, MayBeNumbers) {
  TableData data = scenes({.file = write("n.csv", "x,tags\n1,10 9\n2,2\n3,9\n"), .label_separator = " "});
  data.prepare();
  EXPECT_EQ(data.class_names(), (std::vector<std::string>{"2", "9", "10"}));
  EXPECT_TRUE(same(first(data.train_dataloader())[1], bytes({0, 1, 1, 1, 0, 0, 0, 1, 0}, 3)));
  TableData single = scenes({.file = write("s.csv", "x,tags\n1,10\n2,\n3,9\n")});
  single.prepare();
  EXPECT_TRUE(same(first(single.train_dataloader())[1], bytes({0, 1, 0, 0, 1, 0}, 2)));
}

TEST_F(SeveralLabels, AreReadFromOtherFilesByTheClassesOfTheRun) {
  TableData data = scenes();
  data.prepare();
  EXPECT_EQ(data.schema().text(), R"({"version":3,"features":[{"name":"x","kind":"number"}],"label":"tags",)"
                                  R"("classes":["bird","cat","dog"],"label_separator":"|"})");
  const auto test = write("test.csv", "tags,x\ncat,1\n,2\n");
  TableData restored = scenes({.test_file = test});
  restored.restore_input_transform(data.schema().text());
  EXPECT_TRUE(same(first(restored.test_dataloader())[1], bytes({0, 1, 0, 0, 0, 0}, 3)));
  const auto other = write("other.csv", "tags,x\ncat|cow,1\n");
  TableData unknown = scenes({.test_file = other});
  unknown.restore_input_transform(data.schema().text());
  EXPECT_EQ(message([&] { unknown.test_dataloader(); }),
            "other.csv, row 1, column 'tags': the class 'cow'; expected: one of bird, cat, dog");
  EXPECT_EQ(
      message([&] {
        TableData(TableDataOptions{.file = test, .label = "tags"})
            .restore_input_transform(data.schema().text());
      }),
      "data.label_separator: it is not set; expected: \"|\", as in the run; train another run to change "
      "it");
}

// Rows 0 to 19 have a and b, every second of them c, too.
TEST_F(SeveralLabels, AreSplitInTheProportionsOfTheirSets) {
  std::string text = "x,tags\n";
  for (int i = 0; i < 40; ++i)
    text += std::to_string(i % 7) + (i % 2 == 0 ? ",a|b\n" : i % 4 == 1 ? ",c\n" : ",\n");
  TableData data = scenes({.file = write("many.csv", text), .val_fraction = 0.2, .stratify = true});
  data.prepare();
  const at::Tensor val = first(data.val_dataloader())[1];
  EXPECT_TRUE(same(val.sum(0), at::tensor({4, 4, 2}, at::kLong)));
  EXPECT_EQ(val.size(0), 8);
}

// Each subset of b to f has two rows: with a row of each in the validation, it would have none with a alone.
TEST_F(SeveralLabels, KeepCommonSetsInTheValidationDespiteManyRareOnes) {
  std::string text = "x,tags\n";
  for (int i = 0; i < 98; ++i) text += std::to_string(i % 7) + ",a\n";
  for (int i = 0; i < 62; ++i) {
    text += std::to_string(i % 7) + ",";
    for (int label = 0; label < 5; ++label)
      if (((i / 2 + 1) >> label) % 2 == 1) text += std::string(1, static_cast<char>('b' + label)) + "|";
    text += "\n";
  }
  TableData data = scenes({.file = write("rare.csv", text), .val_fraction = 0.2, .stratify = true});
  data.prepare();
  const at::Tensor val = first(data.val_dataloader())[1];
  ASSERT_EQ(val.size(0), 32);
  EXPECT_NEAR(val.sum(0)[0].item<double>(), 98 * 0.2, 1);
}

TEST_F(SeveralLabels, WarnOfClassesOnOneSideOfASplit) {
  std::string text = "x,tags\n";
  for (int i = 0; i < 40; ++i)
    text += std::to_string(i % 7) + (i == 0 ? ",a|rare\n" : i == 39 ? ",a|late\n" : ",a\n");
  TableData data = scenes({.file = write("many.csv", text)}, {.train = {{0, 30}}, .val = {{30, 40}}});
  EXPECT_EQ(log_of([&] { data.prepare(); }),
            (std::vector<std::string>{"many.csv: 1 of 3 classes have no training sample: 'late'",
                                      "many.csv: 1 of 3 classes have no validation sample: 'rare'"}));
}

TEST_F(SeveralLabels, WarnOfSeparatorsThatDoNotFit) {
  std::string several = "x,tags\n";
  for (int i = 0; i < 40; ++i) several += std::to_string(i % 7) + (i % 3 == 0 ? ",a\n" : ",a|b\n");
  const auto file = write("t.csv", several);
  const auto warning = [&](const std::string& separator) {
    TableData data({.file = file, .label = "tags", .label_separator = separator}, {.shuffle = false});
    const std::vector<std::string> log = log_of([&] { data.prepare(); });
    return log.empty() ? "" : log.front();
  };
  EXPECT_EQ(warning("|"), "");
  EXPECT_EQ(warning(","),
            "t.csv, column 'tags': no training row has more than one label: is "
            "data.label_separator = \",\" right?");
  EXPECT_EQ(warning(""),
            "t.csv, column 'tags': most texts have parts with '|' between them; if these are "
            "several labels, set data.label_separator = \"|\" and model.multi_label = true");
}

// As integers, no loss takes them for class probabilities or numbers to predict.
TEST_F(SeveralLabels, AreRefusedByOtherLosses) {
  const at::Tensor labels = bytes({0, 1, 1, 0, 0, 0}, 3), outputs = at::randn({2, 3});
  EXPECT_NE(
      message([&] { Mlp(MlpOptions{.num_classes = 3}).loss(outputs, labels); }).find("multi_label = true"),
      std::string::npos);
  EXPECT_NE(message([&] { MlpRegressor().loss(outputs, labels); }).find("floating-point"), std::string::npos);
}

TEST_F(SeveralLabels, RefuseWrongOptions) {
  const auto refusal = [&](const TableDataOptions& options, const DataOptions& shared = {}) {
    return message([&] { scenes(options, shared).prepare(); });
  };
  EXPECT_EQ(message([&] { TableData({.file = "t.csv", .target = {"x"}, .label_separator = "|"}); }),
            "data.label_separator: data.label is not set; expected: the column of the labels");
  EXPECT_EQ(
      refusal({.window = 2}),
      "data.label_separator: data.window is set, too; expected: rows as samples, or one label per window");
  EXPECT_EQ(
      refusal({}, {.sampler = "balanced"}),
      "data.sampler: it is \"balanced\", and a row has several labels; expected: data.weights, a column "
      "by which rows are drawn");
  EXPECT_EQ(
      refusal({.on_missing_target = "error"}),
      "scenes.csv, row 2, column 'tags': the value to predict is missing; expected: a value in every row; "
      "fill it in, or remove the row");
  EXPECT_EQ(refusal({.file = write("none.csv", "x,tags\n1,\n2,|\n")}),
            "none.csv, column 'tags': no row has a label; expected: labels such as cat|dog");
}

}  // namespace
}  // namespace kindling
