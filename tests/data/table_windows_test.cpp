#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "data/file_test.h"
#include "data/loading/window_dataset.h"
#include "kindling/base/error.h"
#include "kindling/data/input_transform.h"
#include "kindling/data/table_data.h"
#include "support/log_lines.h"

namespace kindling {
namespace {

class TableWindowsFile : public FileTest {
 protected:
  // Two series whose rows alternate: a has x = 0 … rows-1, b has x = 100 … 100+rows-1; y is 10 times x.
  static std::string alternating(int rows) {
    std::string text = "s,x,y\n";
    for (int i = 0; i < rows; ++i)
      for (const int of_b : {0, 1}) {
        const int x = 100 * of_b + i;
        text += (of_b == 0 ? "a," : "b,") + std::to_string(x) + "," + std::to_string(10 * x) + "\n";
      }
    return text;
  }
  TableData windows(const std::string& text, TableDataOptions options, DataOptions shared = {}) {
    options.file = write("s.csv", text);
    if (options.target.empty() && options.label.empty()) options.target = {"y"};
    if (!options.window) options.window = 3;
    shared.shuffle = false;
    return TableData(std::move(options), std::move(shared));
  }
  // The first feature of each window, and its label.
  using Window = std::pair<std::vector<double>, double>;
  static std::vector<Window> in(const std::shared_ptr<DataLoader>& loader) {
    std::vector<Window> found;
    if (!loader) return found;
    const Batch all = loader->dataset().slice(0, loader->dataset().size());
    for (std::int64_t i = 0; i < all.tensors()[0].size(0); ++i) {
      const at::Tensor x = all.tensors()[0][i].select(1, 0).contiguous();
      found.push_back({{x.const_data_ptr<double>(), x.const_data_ptr<double>() + x.numel()},
                       all.tensors().size() < 2 ? -1 : all.tensors()[1][i].item<double>()});
    }
    return found;
  }
};

TEST_F(TableWindowsFile, HasEachWindowOfEachSeriesWithTheRowAfterIt) {
  TableData data = windows(alternating(5), {.features = {"x"}, .series = "s"}, {.val = {{8, 10}}});
  // The windows are in the order of their last rows in the file; rows 8 and 9 are the last of a and b.
  EXPECT_EQ(in(data.train_dataloader()), (std::vector<Window>{{{0, 1, 2}, 30}, {{100, 101, 102}, 1030}}));
  EXPECT_EQ(in(data.val_dataloader()), (std::vector<Window>{{{1, 2, 3}, 40}, {{101, 102, 103}, 1040}}));
  EXPECT_EQ(data.predict_ids().name, "row");
  EXPECT_EQ(data.predict_ids().values, (std::vector<std::string>{"7", "8"})) << "of their last rows";
  EXPECT_EQ(data.val_ids().name, "row");
  EXPECT_EQ(data.val_ids().values, (std::vector<std::string>{"7", "8"}));
  EXPECT_EQ(data.train_ids().values, (std::vector<std::string>{"5", "6"}));
}

TEST_F(TableWindowsFile, BalancesClassesOnly) {
  EXPECT_EQ(
      message([&] { windows(alternating(5), {.series = "s"}, {.sampler = "balanced"}).train_dataloader(); }),
      "data.sampler = \"balanced\": labels: a tensor of the shape [4, 1] and dtype Float, or negative "
      "labels; expected: integers [samples] from 0 on, on the CPU; omit data.sampler: only classes can "
      "be balanced");
}

TEST_F(TableWindowsFile, ReadsJsonLinesAlike) {
  std::string text;
  for (int i = 0; i < 5; ++i)
    text += R"({"x": )" + std::to_string(i) + R"(, "y": )" + std::to_string(10 * i) + "}\n";
  TableData data(
      {.file = write("s.jsonl", text), .target = {"y"}, .features = {"x"}, .val_fraction = 0.5, .window = 3},
      {.shuffle = false});
  EXPECT_EQ(in(data.train_dataloader()), (std::vector<Window>{{{0, 1, 2}, 30}}));
  EXPECT_EQ(in(data.val_dataloader()), (std::vector<Window>{{{1, 2, 3}, 40}}));
}

TEST_F(TableWindowsFile, PredictsTheRowAtTheHorizon) {
  TableData data = windows(alternating(6), {.features = {"x"}, .horizon = 3, .series = "s"});
  EXPECT_EQ(in(data.train_dataloader()), (std::vector<Window>{{{0, 1, 2}, 50}, {{100, 101, 102}, 1050}}));
}

TEST_F(TableWindowsFile, HasPastValuesOfTheTargetUnlessTheyAreExcluded) {
  TableData data = windows(alternating(5), {.series = "s"});
  data.prepare();
  ASSERT_EQ(data.schema().features.size(), 2U) << "x and y, but not the series";
  EXPECT_EQ(data.schema().features[1].name, "y");
  TableData without = windows(alternating(5), {.exclude = {"y"}, .series = "s"});
  without.prepare();
  ASSERT_EQ(without.schema().features.size(), 1U);
  EXPECT_EQ(without.schema().features[0].name, "x");
}

TEST_F(TableWindowsFile, OrdersTheRowsOfASeriesByTime) {
  const std::string text =
      "t,x,y\n2026-01-03,2,20\n2026-01-01,0,0\n2026-01-05,4,40\n2026-01-02,1,10\n2026-01-04,3,30\n";
  TableData data = windows(text, {.features = {"x"}, .time = "t"});
  EXPECT_EQ(in(data.train_dataloader()), (std::vector<Window>{{{0, 1, 2}, 30}, {{1, 2, 3}, 40}}));
}

TEST_F(TableWindowsFile, ValidatesTheLastWindowsOfEachSeries) {
  // 8 rows of a series are 5 windows; a fifth of all 10 is one of each series.
  TableData data = windows(alternating(8), {.features = {"x"}, .val_fraction = 0.2, .series = "s"});
  EXPECT_EQ(in(data.train_dataloader()).size(), 8U);
  EXPECT_EQ(in(data.val_dataloader()), (std::vector<Window>{{{4, 5, 6}, 70}, {{104, 105, 106}, 1070}}));
}

TEST_F(TableWindowsFile, ValidatesTheLastWindowsByTimeIfThereIsOne) {
  // b begins when a ends: the last windows are all of b.
  std::string text = "s,t,x,y\n";
  for (int i = 0; i < 8; ++i)
    text += std::string(i < 4 ? "a," : "b,") + std::to_string(i) + ",1," + std::to_string(i) + "\n";
  TableDataOptions options{.features = {"x"}, .val_fraction = 0.5, .time = "t", .window = 2, .series = "s"};
  for (const char* const split : {"auto", "time"}) {
    options.split = split;
    TableData data = windows(text, options);
    std::vector<double> trained, validated;
    for (const Window& window : in(data.train_dataloader())) trained.push_back(window.second);
    for (const Window& window : in(data.val_dataloader())) validated.push_back(window.second);
    EXPECT_EQ(trained, (std::vector<double>{2, 3})) << split;
    EXPECT_EQ(validated, (std::vector<double>{6, 7})) << split;
  }
}

// No training window may have the row that a validation window predicts. x is the number of the row.
TEST_F(TableWindowsFile, NeverTrainsOnARowThatIsValidated) {
  std::string text = "x,g,k,y\n";
  for (int i = 0; i < 40; ++i)
    text += std::to_string(i) + ",g" + std::to_string(i / 8) + "," + (i % 3 == 0 ? "u" : "v") + "," +
            std::to_string(i) + "\n";
  const auto num_training = [&](TableDataOptions options, const DataOptions& shared = {}) {
    options.features = {"x"};
    options.window = 2;
    TableData data = windows(text, std::move(options), shared);
    std::vector<Window> train;
    const LogLines log;
    train = in(data.train_dataloader());
    const std::vector<Window> val = in(data.val_dataloader());
    EXPECT_FALSE(val.empty());
    for (const auto& [rows, label] : train)
      for (const auto& [other, validated] : val) {
        EXPECT_NE(label, validated);
        for (const double row : rows) EXPECT_NE(row, validated);
      }
    return train.size();
  };
  // Of 38 windows, 8 are validated in order; a fifth in the middle also costs the two that begin inside it.
  EXPECT_EQ(num_training({.val_fraction = 0.2}), 30U);
  EXPECT_EQ(num_training({.folds = 5, .fold = 4}), 30U);
  EXPECT_EQ(num_training({.folds = 5, .fold = 2}), 38U - 7U - 2U);
  EXPECT_EQ(num_training({.folds = 5, .group = "g"}) % 2, 0U);
  EXPECT_LT(num_training({.val_fraction = 0.2, .split = "random"}), 30U);
  EXPECT_EQ(num_training({}, {.val = {{20, 24}}}), 38U - 4U - 2U);
}

TEST_F(TableWindowsFile, KeepsGroupsTogether) {
  std::string text = "x,g,y\n";
  for (int i = 0; i < 40; ++i)
    text += std::to_string(i) + ",g" + std::to_string(i / 8) + "," + std::to_string(i) + "\n";
  TableData data = windows(text, {.features = {"x"}, .folds = 5, .group = "g", .window = 2});
  const auto group = [](double row) { return static_cast<int>(row) / 8; };
  const std::vector<Window> val = in(data.val_dataloader());
  ASSERT_FALSE(val.empty());
  for (const auto& [rows, label] : in(data.train_dataloader()))
    for (const auto& [others, validated] : val) {
      EXPECT_NE(group(label), group(validated));
      EXPECT_NE(group(rows[0]), group(validated)) << "no row of the group is trained on";
    }
}

TEST_F(TableWindowsFile, SaysHowManyTrainingWindowsARandomSplitCosts) {
  const LogLines log;
  TableData data =
      windows(alternating(40), {.features = {"x"}, .val_fraction = 0.4, .split = "random", .series = "s"});
  data.prepare();
  bool is_said = false;
  for (const std::string& line : log.texts)
    is_said = is_said || line.find(
                             "training windows have rows of the validation, and are omitted; without "
                             "data.split") != std::string::npos;
  EXPECT_TRUE(is_said);
}

// Fitted on the rows of the training windows: x = 0 … 3, of which each counts once.
TEST_F(TableWindowsFile, FitsItsTransformOnTheRowsOfTheTrainingWindows) {
  std::string text = "x,y\n";
  for (const int x : {0, 1, 2, 3, 1000, 2000, 3000}) text += std::to_string(x) + ",1\n";
  TableData data = windows(text, {.features = {"x"}}, {.val = {{5, 7}}});
  data.prepare();
  const at::Tensor mean = data.input_transform()->named_buffers()["mean"];
  EXPECT_DOUBLE_EQ(mean.item<double>(), 1.5);
  Batch batch = data.on_after_batch_transfer(data.val_dataloader()->dataset().slice(0, 1));
  EXPECT_EQ(batch.tensors()[0].sizes(), (std::vector<std::int64_t>{1, 3, 1}));
  EXPECT_EQ(batch.tensors()[0].scalar_type(), at::kFloat);
}

TEST_F(TableWindowsFile, EncodesCategoriesInTheLastDimension) {
  TableData data = windows("x,c,y\n1,u,0\n2,v,0\n3,u,1\n4,v,2\n5,u,3\n",
                           {.features = {"x", "c"}, .normalize = false, .window = 2});
  data.prepare();
  const Batch batch = data.on_after_batch_transfer(data.train_dataloader()->dataset().slice(0, 1));
  EXPECT_TRUE(batch.tensors()[0].equal(at::tensor({1.F, 1.F, 0.F, 2.F, 0.F, 1.F}).view({1, 2, 3})));
}

TEST_F(TableWindowsFile, OmitsWindowsWithoutAValueToPredict) {
  const std::string text = "x,y\n0,0\n1,10\n2,\n3,30\n4,40\n";
  const LogLines log;
  TableData data = windows(text, {.features = {"x"}, .window = 2});
  EXPECT_EQ(in(data.train_dataloader()), (std::vector<Window>{{{1, 2}, 30}, {{2, 3}, 40}}));
  EXPECT_NE(log.texts.at(0).find("omitted 1 of 3 windows"), std::string::npos);
  TableData strict = windows(text, {.features = {"x"}, .window = 2, .on_missing_target = "error"});
  EXPECT_NE(
      message([&] { strict.prepare(); }).find("s.csv, row 3, column 'y': the value to predict is missing"),
      std::string::npos);
}

TEST_F(TableWindowsFile, PredictsEveryWindowOfAnotherFile) {
  TableData data = windows(alternating(5), {.features = {"x", "y"}, .series = "s"});
  data.prepare();
  TableData other({.file = "none.csv", .target = {"y"}});
  other.restore_input_transform(data.input_transform()->description());
  // One series of three rows has a window, though no row follows it; that of two rows has none.
  other.predict_from(write("new.csv", "y,s,x\n1,b,7\n1,a,1\n1,b,8\n1,a,2\n1,a,3\n"));
  EXPECT_EQ(in(other.predict_dataloader()), (std::vector<Window>{{{1, 2, 3}, -1}}));
  EXPECT_EQ(other.predict_ids().values, (std::vector<std::string>{"5"}));
}

TEST_F(TableWindowsFile, IdentifiesWindowsByTheIdOfTheirLastRow) {
  TableData data = windows("n,x,y\na,0,0\nb,1,1\nc,2,2\nd,3,3\ne,4,4\n",
                           {.features = {"x"}, .id = "n", .window = 2}, {.val = {{4, 5}}});
  data.prepare();
  EXPECT_EQ(data.predict_ids().name, "n");
  EXPECT_EQ(data.predict_ids().values, (std::vector<std::string>{"d"}));
}

TEST_F(TableWindowsFile, DrawsWindowsByTheWeightOfTheRowThatTheyPredict) {
  TableData data =
      windows("x,w,y\n0,1,0\n1,1,1\n2,0,2\n3,1,3\n4,0,4\n", {.features = {"x"}, .weights = "w", .window = 2});
  Batch batch;
  data.train_dataloader()->start_epoch(0);
  ASSERT_TRUE(data.train_dataloader()->next(batch));
  EXPECT_TRUE(batch.tensors()[1].eq(3).all().item<bool>());
}

TEST_F(TableWindowsFile, SharesTheRowsBetweenItsSets) {
  TableData data = windows(alternating(8), {.val_fraction = 0.2, .series = "s"});
  const auto rows = [](const std::shared_ptr<DataLoader>& loader) {
    return tensors_in_memory(loader->dataset()).at(0).const_data_ptr();
  };
  EXPECT_EQ(rows(data.train_dataloader()), rows(data.val_dataloader()));
}

// Ten series of one window each: without a correction for short series, no fold but one would have any.
TEST_F(TableWindowsFile, DividesShortSeriesAmongTheFolds) {
  std::string text = "s,x,y\n";
  for (const char series : std::string("abcdefghij"))
    for (int i = 0; i < 4; ++i) text += std::string{series} + "," + std::to_string(i) + ",1\n";
  std::size_t num_validated = 0;
  for (std::int64_t fold = 0; fold < 5; ++fold) {
    TableData data = windows(text, {.features = {"x"}, .folds = 5, .fold = fold, .series = "s"});
    data.prepare();
    EXPECT_EQ(in(data.val_dataloader()).size(), 2U) << fold;
    EXPECT_EQ(in(data.train_dataloader()).size(), 8U) << fold;
    num_validated += in(data.val_dataloader()).size();
  }
  EXPECT_EQ(num_validated, 10U);
}

TEST_F(TableWindowsFile, PredictsEveryWindowOfTheTestFile) {
  TableData data = windows(alternating(5), {.test_file = write("test.csv", alternating(4)), .series = "s"});
  data.prepare();
  EXPECT_EQ(in(data.test_dataloader()).size(), 2U);
  EXPECT_EQ(in(data.predict_dataloader()).size(), 4U);  // the last ones predict rows that do not exist
  EXPECT_EQ(in(data.test_dataloader()).size(), 2U);
}

// 1.125 is 1125 in a CSV file with points between groups of digits, and 1.125 in JSON.
TEST_F(TableWindowsFile, ReadsTimesAsTheFileWritesThem) {
  TableData data = windows("x;y;t\n1;1;1,125\n2;1;1,25\n3;1;1,5\n4;1;1,75\n",
                           {.features = {"x"}, .time = "t", .window = 2, .thousands = ".", .decimal = ","});
  data.prepare();
  data.predict_from(write("new.jsonl", R"({"x": 2, "y": 1, "t": "1.25"}
{"x": 3, "y": 1, "t": "2.5"}
{"x": 1, "y": 1, "t": "1.125"}
)"));
  EXPECT_EQ(in(data.predict_dataloader()), (std::vector<Window>{{{1, 2}, -1}, {{2, 3}, -1}}));
}

TEST_F(TableWindowsFile, WarnsOfEqualTimesInASeries) {
  for (const bool has_series : {false, true}) {
    const LogLines log;
    TableData data = windows("s,x,y,t\na,1,1,1\nb,2,2,1\na,3,1,2\nb,4,3,2\na,5,1,2\n",
                             {.features = {"x"}, .time = "t", .window = 1, .series = has_series ? "s" : ""});
    data.prepare();
    const std::string wanted = has_series ? "1 row of 5 with the time of the row before in the same series; "
                                            "such rows keep the order of the file"
                                          : "3 rows of 5 with the time of the row before in the same series; "
                                            "if the table has several series, set data.series";
    EXPECT_TRUE(std::ranges::any_of(log.texts, [&](const std::string& line) {
      return line.find(wanted) != std::string::npos;
    })) << wanted;
  }
}

TEST_F(TableWindowsFile, RefusesOtherWindowsThanThoseOfTheRun) {
  TableData data = windows(alternating(6), {.series = "s"});
  data.prepare();
  const std::string description = data.input_transform()->description();
  TableDataOptions options{.file = "s.csv", .target = {"y"}, .window = 3, .horizon = 2, .series = "s"};
  TableData other(options);
  EXPECT_EQ(message([&] { other.restore_input_transform(description); }),
            "data.horizon: it is 2; expected: 1, as in the run; train another run to change it");
}

TEST_F(TableWindowsFile, RefusesWhatDoesNotFit) {
  const auto refusal = [&](TableDataOptions options, const std::string& text = alternating(5)) {
    return message([&] {
      options.file = write("s.csv", text);
      options.target = {"y"};
      TableData data(options);
      data.prepare();
    });
  };
  EXPECT_EQ(refusal({.series = "s"}),
            "data.series: data.window is not set; expected: the number of rows of a window; for example "
            "window = 16");
  EXPECT_EQ(refusal({.horizon = 2}),
            "data.horizon: data.window is not set; expected: the number of rows of a window; for example "
            "window = 16");
  EXPECT_EQ(
      refusal({.window = 3, .on_broken = "skip"}),
      "data.on_broken: it is \"skip\", and data.window is set; expected: \"stop\"; a window has consecutive "
      "rows; list marks of missing values in data.na_values instead");
  EXPECT_EQ(refusal({.window = 6, .series = "s"}),
            "s.csv: no series has 7 rows; expected: at least one window and the row that it predicts; set a "
            "smaller data.window or data.horizon");
  EXPECT_EQ(refusal({.window = 3, .horizon = 9223372036854775807, .series = "s"}),
            "data: horizon is 9223372036854775807; expected: an integer >= 1 and <= 1000000000");
  EXPECT_EQ(refusal({.window = 2, .series = "s"}, "s,x,y\na,1,1\na,2,2\n,3,3\na,4,4\n"),
            "s.csv, row 3, column 's': the series is missing; expected: a value in every row");
  EXPECT_EQ(
      refusal({.val_fraction = 0.5, .time = "x", .window = 2, .series = "s"},
              "s,x,y\na,1,1\na,2,2\na,3,3\nb,1,1\nb,2,3\nb,3,4\n"),
      "data.time: all windows predict rows of the same time; expected: at least two different times; set "
      "a smaller data.window, or split whole series with data.group");
  EXPECT_EQ(refusal({.val_fraction = 0.2, .window = 3, .series = "sensor"}),
            "data.series: s.csv has no column 'sensor'; expected: one of s, x, y");
}

}  // namespace
}  // namespace kindling
