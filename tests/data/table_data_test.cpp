#include "kindling/data/table_data.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "data/file_test.h"
#include "kindling/base/error.h"
#include "kindling/base/number_text.h"
#include "kindling/data/input_transform.h"
#include "kindling/models/mlp_regressor.h"
#include "support/device_under_test.h"
#include "support/log_lines.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Rooms are missing in row 2, the city in row 4; the last row has a city that no other row has.
constexpr const char* kHouses =
    "row,rooms,city,age,price\n"
    "a1,1,\"Bern, old\",10,100\n"
    "a2,NA,Chur,20,200\n"
    "a3,3,Chur,30,300\n"
    "a4,5,,40,400\n"
    "a5,9,Basel,100,900\n";

class TableFile : public FileTest {
 protected:
  // The first four rows are for training.
  TableData houses(TableDataOptions options = {}, DataOptions shared = {}) {
    options.file = write("houses.csv", kHouses);
    if (options.target.empty()) options.target = {"price"};
    options.id = "row";
    shared.shuffle = false;
    if (!shared.train) {
      shared.train = {{0, 4}};
      shared.val = {{4, 5}};
    }
    return TableData(options, shared);
  }
  static Batch first(const std::shared_ptr<DataLoader>& loader) {
    Batch batch;
    loader->start_epoch(0);
    loader->next(batch);
    return batch;
  }
  // With NaN equal to NaN.
  static bool same_raw(const at::Tensor& a, const at::Tensor& b) {
    return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
           a.nan_to_num(-777).equal(b.nan_to_num(-777));
  }
  std::vector<std::string> warnings_of(const std::function<void()>& call) {
    LogLines log;
    call();
    for (std::string& text : log.texts) text = without_folder(text);
    return log.texts;
  }
  std::string refusal(TableDataOptions options, DataOptions shared = {}) {
    return message([&] { houses(options, shared).prepare(); });
  }
};

TEST_F(TableFile, HasRawRowsWithNanAndCodes) {
  TableData data = houses();
  data.prepare();
  const Batch train = first(data.train_dataloader()), val = first(data.val_dataloader());
  EXPECT_TRUE(same_raw(
      train[0],
      at::tensor({1., 0., 10., kNan, 1., 20., 3., 1., 30., 5., kNan, 40.}, at::kDouble).view({4, 3})));
  EXPECT_TRUE(same_raw(val[0], at::tensor({9., -1., 100.}, at::kDouble).view({1, 3})));
  EXPECT_TRUE(same(train[1], at::tensor({100.F, 200.F, 300.F, 400.F}).view({4, 1})));
  EXPECT_TRUE(same(val[1], at::tensor({900.F}).view({1, 1})));
}

TEST_F(TableFile, ReadsJsonLinesAsTheCsvFileWithTheSameRows) {
  const auto file =
      write("houses.jsonl",
            "{\"row\": \"a1\", \"rooms\": 1, \"city\": \"Bern, old\", \"age\": 10, \"price\": 100}\n"
            "{\"row\": \"a2\", \"rooms\": null, \"city\": \"Chur\", \"age\": 20, \"price\": 200}\n"
            "{\"row\": \"a3\", \"rooms\": 3, \"city\": \"Chur\", \"age\": 30, \"price\": 300}\n"
            "{\"row\": \"a4\", \"rooms\": 5, \"age\": 40, \"price\": 400}\n"
            "{\"row\": \"a5\", \"rooms\": 9, \"city\": \"Basel\", \"age\": 100, \"price\": 900}\n");
  TableData csv = houses(), lines({.file = file, .target = {"price"}, .id = "row"},
                                  {.shuffle = false, .train = {{0, 4}}, .val = {{4, 5}}});
  csv.prepare();
  lines.prepare();
  EXPECT_EQ(lines.schema().text(), csv.schema().text());
  const Batch expected = first(csv.train_dataloader()), found = first(lines.train_dataloader());
  EXPECT_TRUE(same_raw(found[0], expected[0]));
  EXPECT_TRUE(same(found[1], expected[1]));
  EXPECT_EQ(lines.predict_ids().values, std::vector<std::string>{"a5"});
}

TEST_F(TableFile, ReadsNumbersInJsonLinesAsClassesAndIds) {
  const auto file =
      write("t.jsonl", "{\"x\": 1, \"kind\": 10, \"n\": 7}\n{\"x\": 2, \"kind\": 9, \"n\": 8}\n");
  TableData data({.file = file, .label = "kind", .id = "n"}, {.shuffle = false, .val = {{1, 2}}});
  data.prepare();
  EXPECT_EQ(data.class_names(), (std::vector<std::string>{"9", "10"}));
  EXPECT_EQ(data.predict_ids().values, std::vector<std::string>{"8"});
}

TEST_F(TableFile, TrainsOnTheRowsOutsideTheValidationRange) {
  const auto file = write("t.csv", "x,y\n1,1\n2,2\n3,3\n4,4\n5,5\n");
  TableData data({.file = file, .target = {"y"}}, {.shuffle = false, .val = {{1, 3}}});
  data.prepare();
  EXPECT_TRUE(same(first(data.train_dataloader())[1], at::tensor({1.F, 4.F, 5.F}).view({3, 1})));
  EXPECT_TRUE(same(first(data.val_dataloader())[1], at::tensor({2.F, 3.F}).view({2, 1})));
}

// Rooms 1, 3, 5: median and mean 3; with it 1, 3, 3, 5: standard deviation √2. Ages: 25, √125.
TEST_F(TableFile, FitsItsTransformOnTheTrainingRowsOnly) {
  TableData data = houses();
  data.prepare();
  const at::Tensor x = data.on_after_batch_transfer(first(data.train_dataloader()))[0],
                   v = data.on_after_batch_transfer(first(data.val_dataloader()))[0];
  const double r = 2 / std::sqrt(2.0), a = std::sqrt(125.0);
  const at::Tensor expected = at::tensor({-r, -15 / a, 1.0, 0.0,  //
                                          0.0, -5 / a, 0.0, 1.0,  //
                                          0.0, 5 / a, 0.0, 1.0,   //
                                          r, 15 / a, 0.0, 0.0})
                                  .view({4, 4})
                                  .to(at::kFloat);
  EXPECT_TRUE(at::allclose(x, expected, 1e-6, 1e-6)) << x;  // float32 results
  const at::Tensor expected_val =
      at::tensor({6 / std::sqrt(2.0), 75 / a, 0.0, 0.0}).view({1, 4}).to(at::kFloat);
  EXPECT_TRUE(at::allclose(v, expected_val, 1e-6, 1e-6)) << v;
}

TEST_F(TableFile, ReplacesMissingValuesByTheChosenStatistic) {
  const auto file = write("t.csv", "x,kind,y\n1,a,0\n1,b,0\n2,b,0\n,,0\n6,,0\n");
  const auto transformed = [&](const std::string& missing) {
    TableData data({.file = file, .target = {"y"}, .missing = missing, .normalize = false},
                   {.shuffle = false});
    data.prepare();
    return data.on_after_batch_transfer(first(data.train_dataloader()))[0].slice(0, 3, 4);
  };
  EXPECT_TRUE(same(transformed("mean"), at::tensor({2.5F, 0.F, 0.F}).view({1, 3})));
  EXPECT_TRUE(same(transformed("median"), at::tensor({1.5F, 0.F, 0.F}).view({1, 3})));
  EXPECT_TRUE(same(transformed("most_frequent"), at::tensor({1.F, 0.F, 1.F}).view({1, 3})));
}

TEST_F(TableFile, DoesNotScaleAConstant) {
  const auto file = write("t.csv", "x,y\n0.1,1\n0.1,2\n0.1,3\n0.2,4\n");
  TableData data({.file = file, .target = {"y"}}, {.shuffle = false, .val = {{3, 4}}});
  data.prepare();
  EXPECT_TRUE(same(data.on_after_batch_transfer(first(data.train_dataloader()))[0], at::zeros({3, 1})));
  EXPECT_TRUE(same(data.on_after_batch_transfer(first(data.val_dataloader()))[0], at::full({1, 1}, 0.1F)));
}

// Numbers i = 0 … n - 1 at equal distances have the mean (n - 1) / 2 and the variance (n² - 1) / 12. The
// columns of NumPy's float64: (x - x.mean()) / x.std().
struct EvenColumn {
  const char* name;
  double first = 0, step = 1;
};

constexpr int kNumRows = 600;

at::Tensor standard_scores() {
  const double deviation = std::sqrt((static_cast<double>(kNumRows) * kNumRows - 1) / 12);
  return ((at::arange(kNumRows, at::kDouble) - (kNumRows - 1) / 2.0) / deviation).to(at::kFloat);
}

std::string table_of(const std::vector<EvenColumn>& columns) {
  std::string text;
  for (const EvenColumn& column : columns) text += std::string(column.name) + ",";
  text += "y\n";
  for (int i = 0; i < kNumRows; ++i) {
    for (const auto& [name, first, step] : columns) text += number_text(first + step * i) + ",";
    text += std::to_string(i) + "\n";
  }
  return text;
}

TEST_F(TableFile, KeepsTheDigitsThatFloat32WouldRoundAway) {
  // The last two are fine enough for float32, which rounds one of them by up to 8e-4 of its deviation.
  const std::vector<EvenColumn> columns{{"unix", 1.7e9, 1},          {"milliseconds", 1.7e12, 1},
                                        {"utm", 5300000.12, 0.1},    {"pascal", 101325, 1.0 / 64},
                                        {"tiny", 1e-300, 1e-303},    {"counter", 4398046511104, 1},
                                        {"kelvin", 293.15, 0.00013}, {"age", 20, 0.1}};
  const auto file = write("t.csv", table_of(columns));
  TableData data({.file = file, .target = {"y"}}, {.batch_size = kNumRows, .shuffle = false});
  EXPECT_TRUE(warnings_of([&] { data.prepare(); }).empty());
  const at::Tensor x = data.on_after_batch_transfer(first(data.train_dataloader()))[0];
  ASSERT_EQ(x.scalar_type(), at::kFloat);
  for (std::size_t i = 0; i < columns.size(); ++i) {
    // float32 holds the scores, up to √3, to 1.2e-7; decimals of "utm" are rounded to 1e-9 in float64.
    EXPECT_TRUE(close(x.select(1, static_cast<std::int64_t>(i)), standard_scores(), 3e-7)) << columns[i].name;
    EXPECT_EQ(data.schema().features[i].offset.has_value(), i < 6) << columns[i].name;
  }
  EXPECT_NEAR(data.schema().features[0].offset.value(), 1.7e9 + 299.5, 1e-6);
  EXPECT_EQ(data.program_input_type(), at::kDouble);

  // As `kindling predict` reads the file.
  TableData again({.file = file, .target = {"y"}}, {.batch_size = kNumRows});
  again.restore_input_transform(data.schema().text());
  again.predict_from(file);
  again.prepare();
  MlpRegressor model, loaded;
  set_input_transform(model, data.input_transform());
  set_input_transform(loaded, again.input_transform());
  load_state_dict(*again.input_transform(), state_dict(*data.input_transform()));
  EXPECT_TRUE(same(again.on_after_batch_transfer(first(again.predict_dataloader()))[0], x));
}

TEST_F(TableFile, TakesFloat32RowsInProgramsUnlessTheyLackDigits) {
  const auto file = write("t.csv", table_of({{"age", 20, 0.1}}));
  TableData data({.file = file, .target = {"y"}}, {.batch_size = kNumRows, .shuffle = false});
  data.prepare();
  EXPECT_EQ(data.program_input_type(), at::kFloat);
  const at::Tensor raw = first(data.train_dataloader())[0];
  EXPECT_TRUE(
      close(data.input_transform()->forward(raw.to(at::kFloat)), standard_scores().unsqueeze(1), 1e-5));

  TableData times({.file = write("u.csv", table_of({{"time", 1.7e9, 1}})), .target = {"y"}},
                  {.batch_size = kNumRows, .shuffle = false});
  times.prepare();
  const at::Tensor seconds = first(times.train_dataloader())[0];
  EXPECT_EQ(message([&] { times.input_transform()->forward(seconds.to(at::kFloat)); }),
            "input_transform, column 'time': the rows are Float [600, 1], which rounds the values around "
            "1700000299.5 coarsely; expected: float64 rows; read them as float64; rows that were float32 "
            "before have lost their digits");
}

// Its model was trained on rows that were rounded to float32.
TEST_F(TableFile, KeepsFloat32ForADescriptionOfVersionOne) {
  const auto file = write("t.csv", table_of({{"time", 1.7e9, 1}}));
  TableData data({.file = file, .target = {"y"}}, {.batch_size = kNumRows, .shuffle = false});
  data.restore_input_transform(
      R"({"version":1,"features":[{"name":"time","kind":"number"}],"targets":["y"]})");
  data.prepare();
  EXPECT_EQ(data.program_input_type(), at::kFloat);
  const auto transform = data.input_transform();
  load_state_dict(*transform, {.tensors = {{"fill", at::tensor({1700000256.F})},
                                           {"numbers", at::tensor({0}, at::kLong)},
                                           {"mean", at::tensor({1700000256.F})},
                                           {"std", at::tensor({173.F})},
                                           {"code_column", at::empty({0}, at::kLong)},
                                           {"code", at::empty({0})}},
                               .metadata = {}});
  EXPECT_EQ(state_dict(*transform).find("mean")->scalar_type(), at::kFloat);
  const at::Tensor raw = first(data.train_dataloader())[0];
  EXPECT_TRUE(same(data.on_after_batch_transfer(Batch{raw})[0],
                   (raw.to(at::kFloat) - at::tensor({1700000256.F})) / at::tensor({173.F})));
}

TEST_F(TableFile, AdoptsASavedDescriptionOfTheSameColumns) {
  const auto file = write("t.csv", table_of({{"time", 1.7e9, 1}})),
             later = write("later.csv", table_of({{"time", 1.8e9, 1}}));
  TableData data({.file = file, .target = {"y"}}), other({.file = later, .target = {"y"}});
  data.prepare();
  other.prepare();
  EXPECT_NE(other.schema().text(), data.schema().text());
  EXPECT_TRUE(other.input_transform()->adopt(data.schema().text()));
  EXPECT_EQ(other.schema().text(), data.schema().text());
  const at::Tensor rows = at::full({1, 1}, 1700000299.5, at::kDouble);
  EXPECT_TRUE(close(other.input_transform()->forward(rows), at::zeros({1, 1}), 1e-6));
  const std::string former = R"({"version":1,"features":[{"name":"time","kind":"number"}],"targets":["y"]})";
  EXPECT_EQ(warnings_of([&] { EXPECT_TRUE(other.input_transform()->adopt(former)); }),
            (std::vector<std::string>{
                "column 'time': float32 rounds the values coarsely, as in the saved run, which is of a "
                "former version; start a new run to keep their digits"}));
  EXPECT_EQ(other.schema().text(), former);
  EXPECT_EQ(state_dict(*other.input_transform()).find("mean")->scalar_type(), at::kFloat);
  EXPECT_FALSE(other.input_transform()->adopt(
      R"({"version":2,"features":[{"name":"date","kind":"number"}],"targets":["y"]})"));
  EXPECT_EQ(other.schema().text(), former);
}

TEST_F(TableFile, WarnsOfValuesThatFloat32RoundsIfNothingIsSubtracted) {
  const auto file = write("t.csv", table_of({{"time", 1.7e9, 1}, {"age", 20, 0.1}}));
  TableData data({.file = file, .target = {"y"}, .normalize = false});
  EXPECT_EQ(warnings_of([&] { data.prepare(); }),
            (std::vector<std::string>{
                "t.csv, column 'time': float32 rounds the values coarsely, because the largest is 1.7e9, but "
                "their standard deviation 173; set data.normalize = true, which subtracts the mean in "
                "float64 first, or subtract an offset from the column"}));
  EXPECT_EQ(data.program_input_type(), at::kFloat);
}

TEST_F(TableFile, SplitsByTime) {
  const auto val_of = [&](const std::string& times, TableDataOptions options = {}) {
    std::string text = "date,x,y\n";
    std::int64_t row = 0;
    for (std::size_t at = 0; at < times.size(); ++row) {
      const std::size_t end = std::min(times.find(',', at), times.size());
      text += times.substr(at, end - at) + "," + std::to_string(row) + ",1\n";
      at = end + 1;
    }
    options.file = write("t.csv", text);
    options.target = {"y"};
    options.val_fraction = 0.4;
    options.split = "time";
    options.time = "date";
    TableData data(options, {.shuffle = false});
    data.prepare();
    EXPECT_EQ(data.schema().features.size(), options.features.empty() ? 1U : 2U);
    return data.val_dataloader()->dataset().slice(0, data.val_dataloader()->dataset().size())[0].select(1, 0);
  };
  const auto rows = [](std::vector<double> values) { return at::tensor(values, at::kDouble); };
  EXPECT_TRUE(
      same(val_of("2026-11-29,2026-01-02T10:00:00Z,2026-11-30 07:30,2025-12-31,2026-01-02T13:00+05:00"),
           rows({0, 2})));
  EXPECT_TRUE(same(val_of("10,9,100,1,-5"), rows({0, 2})));
  // The model reads the times if it is told to.
  EXPECT_TRUE(same(val_of("10,9,100,1,-5", {.features = {"x", "date"}}), rows({0, 2})));
  const std::string wanted = "; expected: a number, or a date such as 2026-11-29 or 2026-11-29T15:30:00Z";
  EXPECT_EQ(message([&] { val_of("2026-11-29,2026-02-30,2026-01-01"); }),
            "t.csv, row 2, column 'date': '2026-02-30' is not a time" + wanted);
  EXPECT_EQ(message([&] { val_of("1,2,abc,4"); }),
            "t.csv, row 3, column 'date': 'abc' is not a time" + wanted);
  EXPECT_EQ(message([&] { val_of("2026-11-29,,2026-01-01"); }),
            "t.csv, row 2, column 'date': the time is missing" + wanted);
  EXPECT_EQ(message([&] {
              TableData({.file = write("t.csv", "day,y\n1,2\n2,3\n"),
                         .target = {"y"},
                         .val_fraction = 0.5,
                         .split = "time",
                         .time = "date"})
                  .prepare();
            }),
            "data.time: t.csv has no column 'date'; expected: one of day, y");
  const auto refused = [&](TableDataOptions options) {
    return refusal(std::move(options), {.train = {{0, 5}}});
  };
  EXPECT_EQ(refused({.time = "age"}),
            "data.time: the rows are not split by time; expected: split = \"time\" or window as well");
  EXPECT_EQ(refused({.split = "time"}),
            "data.split: data.time is not set; expected: the column of the times, such as time = \"date\"");
}

TEST_F(TableFile, SplitsByTimesAsTheFileWritesNumbers) {
  const auto val_of = [&](TableDataOptions options, const std::string& name, const std::string& text) {
    options.file = write(name, text);
    if (options.target.empty()) options.target = {"y"};
    options.val_fraction = 0.4;
    options.split = "time";
    TableData data(options, {.shuffle = false});
    data.prepare();
    return data.val_dataloader()->dataset().slice(0, data.val_dataloader()->dataset().size())[0].select(1, 0);
  };
  const auto rows = [](std::vector<double> values) { return at::tensor(values, at::kDouble); };
  const std::string german = "t;x;y\n999;0;1\n1.001;1;1\n1,5;2;1\n1.000;3;1\n998;4;1\n";
  EXPECT_TRUE(same(val_of({.time = "t", .thousands = ".", .decimal = ","}, "t.csv", german), rows({1, 3})));
  // Numbers of JSON have a point in any case.
  EXPECT_TRUE(same(val_of({.time = "t", .thousands = ".", .decimal = ","}, "t.jsonl",
                          "{\"t\":1.5,\"x\":0,\"y\":1}\n{\"t\":1.125,\"x\":1,\"y\":1}\n"
                          "{\"t\":1.25,\"x\":2,\"y\":1}\n"),
                   rows({0})));
  // The times may be what is predicted or the weights.
  const std::string plain = "x,y\n0,10\n1,9\n2,100\n3,1\n4,5\n";
  EXPECT_TRUE(same(val_of({.time = "y"}, "t.csv", plain), rows({0, 2})));
  EXPECT_TRUE(same(val_of({.target = {"x"}, .features = {"x2"}, .weights = "y", .time = "y"}, "t.csv",
                          "x,x2,y\n0,0,10\n1,1,9\n2,2,100\n3,3,1\n4,4,5\n"),
                   rows({0, 2})));
}

// A rare class, and classes of a small fraction.
TEST_F(TableFile, WarnsOfClassesWithoutAValidationRow) {
  std::string text = "x,kind\n";
  for (int i = 40; i > 0; --i)
    text += std::to_string(i) + "," + (i == 7 ? "rare" : i % 2 == 0 ? "a" : "b") + "\n";
  const auto file = write("t.csv", text);
  const auto warnings = [&](bool stratify) {
    TableData data({.file = file, .label = "kind", .val_fraction = 0.1, .stratify = stratify});
    const std::vector<std::string> lines = warnings_of([&] { data.prepare(); });
    return lines.empty() ? "none" : lines.back();
  };
  EXPECT_EQ(warnings(true), "t.csv: 1 of 3 classes have no validation sample: 'rare'");
  text.replace(text.find("rare"), 4, "b");
  write("t.csv", text);
  EXPECT_EQ(warnings(true), "none");
  // The key is of no use for classes of one row each, only for the others.
  std::string distinct = "x,kind\n";
  for (int i = 0; i < 40; ++i) distinct += std::to_string(i) + ",k" + std::to_string(i) + "\n";
  write("t.csv", distinct);
  EXPECT_EQ(warnings(false).find("data.stratify"), std::string::npos) << warnings(false);
  for (int i = 0; i < 3; ++i) distinct += std::to_string(i) + ",twice\n";
  write("t.csv", distinct);
  TableData data({.file = file, .label = "kind"}, {.val = {{0, 4}}});
  EXPECT_NE(warnings_of([&] { data.prepare(); }).back().find("data.stratify"), std::string::npos);
}

TEST_F(TableFile, RefusesNumbersBeyondFloat32) {
  const auto file = write("t.csv", "x,y\n1,1\n1e300,2\n");
  EXPECT_EQ(message([&] { TableData({.file = file, .target = {"y"}}).prepare(); }),
            "t.csv, row 2, column 'x': 1e+300, which float32 cannot represent; expected: a number between "
            "-3.4e38 and 3.4e38; use another unit, or the logarithm");
  EXPECT_EQ(message([&] { TableData({.file = file, .target = {"x"}}).prepare(); }),
            "t.csv, row 2, column 'x': 1e+300, which float32 cannot represent; expected: a number between "
            "-3.4e38 and 3.4e38; use another unit, or the logarithm");
}

TEST_F(TableFile, NeedsAColumnWithATrainingValue) {
  const auto file = write("t.csv", "x,kind,more,y\n1,,,1\n2,,,2\n3,b,4,3\n");
  TableData without({.file = file, .target = {"y"}}, {.val = {{2, 3}}});
  EXPECT_EQ(
      warnings_of([&] { without.prepare(); }),
      std::vector<std::string>{"t.csv: without any value in the training rows, and so omitted: kind, more"});
  EXPECT_EQ(without.schema().features.size(), 1u);
  TableData warned({.file = file, .target = {"y"}, .features = {"x", "kind"}}, {.val = {{2, 3}}});
  EXPECT_EQ(warnings_of([&] { warned.prepare(); }),
            (std::vector<std::string>{
                "t.csv, column 'kind': 1 value is a category that the training rows do not have (such as "
                "'b'); their columns of the encoding are all 0",
                "t.csv, column 'kind': the training rows have no value, so that the model does not receive "
                "the column"}));
  EXPECT_EQ(message([&] {
              TableData({.file = file, .target = {"y"}, .features = {"kind"}}, {.val = {{2, 3}}}).prepare();
            }),
            "t.csv: the training rows have no value in any column that the model reads; expected: at least "
            "one");
}

TEST_F(TableFile, TreatsAnEmptyFieldOfADeclaredColumnAsACategory) {
  TableData data = houses({.categories = {"city"}});
  data.prepare();
  EXPECT_EQ(data.schema().features[1].categories, (std::vector<std::string>{"", "Bern, old", "Chur"}));
}

TEST_F(TableFile, SortsTheClassesOfALabel) {
  const auto file = write("t.csv", "x,kind\n1,wolf\n2,ape\n3,wolf\n4,bear\n");
  TableData data({.file = file, .label = "kind"}, {.shuffle = false});
  data.prepare();
  EXPECT_EQ(data.class_names(), (std::vector<std::string>{"ape", "bear", "wolf"}));
  EXPECT_TRUE(same(first(data.train_dataloader())[1], at::tensor({2, 0, 2, 1}, at::kLong)));
  TableData numbers({.file = write("n.csv", "x,k\n1,10\n2,9\n3,2.5\n"), .label = "k"}, {.shuffle = false});
  numbers.prepare();
  EXPECT_EQ(numbers.class_names(), (std::vector<std::string>{"2.5", "9", "10"}));
}

TEST_F(TableFile, ReadsAnotherFileAsTheTrainingFile) {
  TableData trained = houses();
  trained.prepare();
  TableData data = houses();
  data.restore_input_transform(trained.input_transform()->description());
  data.predict_from(write("new.csv", "age,city,rooms,note\n7,Zug,2,x\n8,Chur,,y\n9,7,4,z\n"));
  Batch batch;
  const std::vector<std::string> warnings = warnings_of([&] {
    data.prepare();
    batch = first(data.predict_dataloader());
  });
  EXPECT_EQ(batch.size(), 1U);
  EXPECT_TRUE(
      same_raw(batch[0], at::tensor({2., -1., 7., kNan, 1., 8., 4., -1., 9.}, at::kDouble).view({3, 3})));
  EXPECT_TRUE(data.predict_ids().values.empty());
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(warnings[0],
            "new.csv, column 'city': 2 values are categories that the training rows do not have (such as "
            "'Zug', '7'); their columns of the encoding are all 0");
}

TEST_F(TableFile, DistinguishesClassesByTheirTexts) {
  const auto file = write("t.csv", "x,k\n1,10\n2,01\n3,1\n4,-0\n5,0\n"),
             test = write("test.csv", "k,x\n10.0,1\n01,2\n");
  TableData data({.file = file, .test_file = test, .label = "k"}, {.shuffle = false});
  data.prepare();
  EXPECT_EQ(data.class_names(), (std::vector<std::string>{"-0", "0", "01", "1", "10"}));
  EXPECT_TRUE(same(first(data.train_dataloader())[1], at::tensor({4, 2, 3, 0, 1}, at::kLong)));
  EXPECT_TRUE(same(first(data.test_dataloader())[1], at::tensor({4, 2}, at::kLong)));
  const auto ambiguous = write("test.csv", "k,x\n1.0,1\n");
  TableData other({.file = file, .test_file = ambiguous, .label = "k"});
  EXPECT_EQ(message([&] { other.test_dataloader(); }),
            "test.csv, row 1, column 'k': the class '1.0'; expected: one of -0, 0, 01, 1, 10");
  EXPECT_EQ(
      message([&] {
        TableData({.file = write("m.csv", "x,k\n1,1\n2,\n"), .label = "k", .on_missing_target = "error"})
            .prepare();
      }),
      "m.csv, row 2, column 'k': the value to predict is missing; expected: a value in every row; fill "
      "it in, or remove the row");
}

TEST_F(TableFile, HasTheIdsOfARestoredTransform) {
  TableData trained = houses();
  trained.prepare();
  TableData data({.file = "no.csv", .target = {"price"}});
  data.restore_input_transform(trained.schema().text());
  data.predict_from(write("new.csv", "age,city,rooms,row\n7,Chur,2,01\n8,Chur,3,1\n"));
  data.prepare();
  data.predict_dataloader();
  EXPECT_EQ(data.predict_ids().name, "row");
  EXPECT_EQ(data.predict_ids().values, (std::vector<std::string>{"01", "1"}));
  EXPECT_EQ(message([] { TableData({.target = {"y"}, .id = "sample"}); }),
            "data.id: predictions have another column 'sample'; expected: a column with another name; rename "
            "it in the file");
  // Only predictions of several labels have the column.
  EXPECT_NO_THROW(TableData({.file = "no.csv", .target = {"y"}, .id = "classes"}));
  EXPECT_EQ(
      message([] { TableData({.file = "no.csv", .label = "y", .label_separator = "|", .id = "classes"}); }),
      "data.id: predictions have another column 'classes'; expected: a column with another name; rename "
      "it in the file");
}

TEST_F(TableFile, PredictsTestRowsWithoutLabels) {
  TableData data = houses({.test_file = write("test.csv", "age,city,rooms,row\n7,Chur,2,b1\n")});
  data.prepare();
  const Batch batch = first(data.predict_dataloader());
  EXPECT_EQ(batch.size(), 1U);
  EXPECT_TRUE(same(batch[0], at::tensor({2., 1., 7.}, at::kDouble).view({1, 3})));
  EXPECT_EQ(data.predict_ids().values, (std::vector<std::string>{"b1"}));
  EXPECT_EQ(message([&] { data.test_dataloader(); }),
            "test.csv: the column 'price' is missing; expected: the column that the model predicts");
  TableData labelled = houses({.test_file = write("all.csv", "price,age,city,rooms,row\n9,7,Chur,2,b1\n")});
  labelled.prepare();
  EXPECT_TRUE(same(first(labelled.predict_dataloader())[1], at::full({1, 1}, 9.F)));
}

TEST_F(TableFile, HasTheIdsOfItsValidationRows) {
  TableData data = houses();
  data.prepare();
  data.predict_dataloader();
  EXPECT_EQ(data.predict_ids().name, "row");
  EXPECT_EQ(data.predict_ids().values, (std::vector<std::string>{"a5"}));
}

TEST_F(TableFile, SplitsTheSameRowsWithARestoredTransform) {
  std::string text = "x,owner,kind\n";
  for (int i = 0; i < 60; ++i)
    text += std::to_string(i) + "," + std::to_string(i % 12) + "," + (i % 3 == 0 ? "b" : "a") + "\n";
  const TableDataOptions options{.file = write("t.csv", text),
                                 .label = "kind",
                                 .folds = 3,
                                 .fold = 1,
                                 .stratify = true,
                                 .group = "owner"};
  TableData fitted(options), restored(options);
  fitted.prepare();
  restored.restore_input_transform(fitted.schema().text());
  restored.prepare();
  EXPECT_EQ(fitted.schema().features.size(), 1U);  // without the group
  EXPECT_TRUE(same(first(restored.val_dataloader())[0], first(fitted.val_dataloader())[0]));
}

TEST_F(TableFile, NamesUnknownColumnsAndFiles) {
  EXPECT_EQ(
      refusal({.target = {"prize"}}),
      "data.target: houses.csv has no column 'prize'; expected: one of row, rooms, city, age, price; did you "
      "mean 'price'?");
  const auto named = [&](TableDataOptions options) {
    options.file = write("t.csv", "x,kind\n1,a\n");
    return message([&] { TableData(options).prepare(); });
  };
  EXPECT_EQ(named({.label = "kin"}),
            "data.label: t.csv has no column 'kin'; expected: one of x, kind; did you mean 'kind'?");
  EXPECT_EQ(named({.label = "kind", .id = "no."}),
            "data.id: t.csv has no column 'no.'; expected: one of x, kind");
  EXPECT_EQ(
      refusal({.features = {"rooms", "price"}}),
      "data.features: 'price' is also to be predicted; expected: distinct columns that the model reads");
  EXPECT_EQ(message([&] { TableData({.file = scratch_ / "no.csv", .label = "x"}).prepare(); }),
            "no.csv: no such file; expected: the CSV or JSON lines file of data.file; relative paths are "
            "relative to the config "
            "file's directory");
  EXPECT_EQ(message([&] { TableData({.label = "x"}).prepare(); }),
            "data.file: no file is given; expected: a CSV or JSON lines file");
}

TEST_F(TableFile, RefusesOptionsThatDoNotFit) {
  EXPECT_EQ(message([] { TableData({.file = "t.csv"}); }),
            "data: neither target nor label is set; expected: the column to predict; for example target = "
            "\"price\"");
  EXPECT_EQ(refusal({.val_fraction = 0.2}, {.train = {{0, 2}}}),
            "data: val_fraction or folds, and a range of rows in train or val; expected: one way to split "
            "the rows");
  EXPECT_EQ(message([] { TableData({.target = {"y"}, .val_fraction = 0.2, .stratify = true}); }),
            "data.stratify: there is no label; expected: a column of classes, data.label");
  EXPECT_EQ(
      message([] { TableData({.target = {"y"}, .group = "owner"}); }),
      "data.group: the rows are not split; expected: val_fraction or folds; for example val_fraction = 0.2");
  EXPECT_EQ(message([] { TableData({.target = {"y"}, .fold = 2}); }),
            "data.fold: folds is not set; expected: folds = N, with fold < N");
  for (const std::string delimiter : {"x", "", "::"})
    EXPECT_EQ(message([&] { TableData({.target = {"y"}, .delimiter = delimiter}); }),
              "data.delimiter: \"" + delimiter + "\"; expected: a comma, semicolon, tab, |, blank, or auto");
  EXPECT_EQ(message([] { TableData({.target = {"y"}, .thousands = "."}); }),
            "data.thousands: data.decimal is the same character; expected: different characters");
  EXPECT_EQ(message([] { TableData({.target = {"y"}, .features = {"x"}, .exclude = {"x"}}); }),
            "data.exclude: 'x' is also in data.features; expected: one of them");
  EXPECT_EQ(refusal({}, {.train = {{0, 9}}}),
            "data.train: the range [0, 9]; expected: [first, end] with 0 <= first < end <= 5");
  EXPECT_EQ(refusal({}, {.train = {{0, 4}}, .val = {{3, 5}}}),
            "data.val: row 3 is also in the range data.train; expected: ranges that do not overlap");
  EXPECT_EQ(message([&] {
              TableData({.file = write("t.csv", "x,y\n1,1\n"), .target = {"y"}}, {.val = {{0, 1}}}).prepare();
            }),
            "data.val: the range contains all rows; expected: at least one row that is left for training");
}

TEST_F(TableFile, NamesTheRowOfAMissingValue) {
  const std::string wanted =
      ": the value is missing; expected: a value in every row; fill it in, or set "
      "data.missing to \"median\"";
  EXPECT_EQ(refusal({.missing = "error"}),
            "houses.csv, row 2, column 'rooms'" + wanted + "\nhouses.csv, row 4, column 'city'" + wanted);
  EXPECT_EQ(
      refusal({.target = {"rooms"}, .on_missing_target = "error"}),
      "houses.csv, row 2, column 'rooms': the value to predict is missing; expected: a value in every row; "
      "fill it in, or remove the row");
  EXPECT_EQ(refusal({.target = {"city"}}),
            "houses.csv, column 'city': the values to predict are texts; expected: numbers; for classes, set "
            "data.label instead of data.target");
  const auto empty = write("e.csv", "x,y\n,1\nNA,2\n3,3\n");
  EXPECT_EQ(
      message([&] {
        TableData({.file = empty, .target = {"y"}, .features = {"x"}}, {.train = {{0, 2}}}).prepare();
      }),
      "e.csv, column 'x': the training rows have no value; expected: at least one; omit the column from "
      "data.features");
}

TEST_F(TableFile, NamesAMissingColumnAndAnUnknownClass) {
  TableData trained = houses();
  trained.prepare();
  TableData data = houses();
  data.restore_input_transform(trained.schema().text());
  data.predict_from(write("new.csv", "age,city\n7,Zug\n"));
  EXPECT_EQ(
      message([&] { data.predict_dataloader(); }),
      "new.csv: the column 'rooms' is missing; expected: the columns that the model was trained on: rooms, "
      "city, age");
  TableData flowers({.file = write("f.csv", "x,k\n1,a\n2,b\n"),
                     .test_file = write("g.csv", "k,x\na,1\nc,2\n"),
                     .label = "k"});
  EXPECT_EQ(message([&] { flowers.test_dataloader(); }),
            "g.csv, row 2, column 'k': the class 'c'; expected: one of a, b");
}

// Rows 1 to 4 with the weights 0, 1, 3, 0.
constexpr const char* kWeighted = "x,w,y\n1,0,10\n2,1,20\n3,3,30\n4,0,40\n5,-1,50\n";

TEST_F(TableFile, DrawsTrainingRowsByTheirWeights) {
  const TableDataOptions options{.file = write("w.csv", kWeighted), .target = {"y"}, .weights = "w"};
  std::string text = kWeighted;
  text.resize(text.find("5,-1"));
  write("w.csv", text);
  TableData data(options, {.batch_size = 4});
  const auto loader = data.train_dataloader();
  EXPECT_EQ(data.schema().features.size(), 1U);  // the weights are not an input
  std::map<float, int> counts;
  for (std::int64_t epoch = 0; epoch < 500; ++epoch) {
    loader->start_epoch(epoch);
    Batch batch;
    ASSERT_TRUE(loader->next(batch));
    ASSERT_EQ(batch.num_samples(), 4);
    for (int i = 0; i < 4; ++i) ++counts[batch[1][i].item<float>()];
  }
  EXPECT_EQ(counts.size(), 2U);
  EXPECT_NEAR(counts[20], 500, 80);
  EXPECT_NEAR(counts[30], 1500, 80);
  TableData again(options, {.batch_size = 4});
  again.restore_input_transform(data.schema().text());
  EXPECT_TRUE(first(again.train_dataloader())[1].equal(first(loader)[1]));
}

TEST_F(TableFile, RefusesWeightsThatAreNone) {
  const auto refusal_of = [&](const std::string& file, DataOptions shared = {}) {
    return message([&] {
      TableData({.file = write("w.csv", file), .target = {"y"}, .weights = "w"}, shared).prepare();
    });
  };
  EXPECT_EQ(refusal_of(kWeighted),
            "w.csv, row 5, column 'w': the weight -1; expected: a number that is at least 0");
  EXPECT_EQ(refusal_of("x,w,y\n1,NA,2\n1,2,3\n"),
            "w.csv, row 1, column 'w': the weight is missing; expected: a number that is at least 0");
  EXPECT_EQ(refusal_of("x,w,y\n1,a,2\n"), "w.csv, column 'w': the weights are texts; expected: numbers");
  EXPECT_NE(refusal_of("x,w,y\n1,0,2\n").find("all training rows have the weight 0"), std::string::npos);
  EXPECT_NE(refusal_of("x,v,y\n1,0,2\n").find("data.weights"), std::string::npos);
  EXPECT_NE(refusal_of(kWeighted, {.sampler = "balanced"}).find("data.sampler is set, too"),
            std::string::npos);
}

TEST_F(TableFile, ValidatesOnMoreFiles) {
  const auto near = write("near.csv", "price,city,rooms,age,row\n1,Chur,2,3,n1\n"),
             far = write("far.csv", "rooms,city,age,price\n7,Chur,8,9\n7,Chur,8,9\n");
  TableData data({.file = write("houses.csv", kHouses),
                  .val_files = {near.string(), far.string()},
                  .target = {"price"},
                  .id = "row"});
  EXPECT_EQ(data.train_dataloader()->num_samples(), 5);
  EXPECT_EQ(first(data.val_dataloader())[1].item<float>(), 1);
  EXPECT_EQ(data.predict_ids().values, (std::vector<std::string>{"n1"}));
  ASSERT_EQ(data.more_val_dataloaders().size(), 1U);
  EXPECT_EQ(data.more_val_dataloaders()[0].name, "far");
  EXPECT_EQ(data.more_val_dataloaders()[0].loader->num_samples(), 2);

  TableData split = houses({.val_files = {near.string(), far.string()}});
  EXPECT_EQ(first(split.val_dataloader())[1].item<float>(), 900);
  EXPECT_EQ(split.more_val_dataloaders().size(), 2U);

  EXPECT_NE(refusal({.val_files = {"a/x.csv", "b/x.csv"}}).find("two files are named 'x'"),
            std::string::npos);
  EXPECT_NE(refusal({.val_files = {"none.csv"}}).find("data.val_files"), std::string::npos);
}

TEST_F(TableFile, SkipsBrokenRowsIfAsked) {
  const std::string text =
      "row,rooms,city,age,price\n"
      "a1,1,Bern,10,100\n"
      "a2,2,Bern\n"
      "a3,3,Chur,thirty,300\n"
      "a4,4,Chur,40,\n"
      "a5,5,Chur,50,500\n"
      "a6,6,Bern,60,1e300\n";
  const auto file = write("broken.csv", text);
  const auto data_of = [&](const std::string& on_broken) {
    return TableData({.file = file, .target = {"price"}, .id = "row", .on_broken = on_broken},
                     {.shuffle = false, .train = {{0, 1}}, .val = {{1, 2}}});
  };
  EXPECT_NE(message([&] { data_of("stop").prepare(); }).find("broken.csv, row 2 (line 3), column 'age'"),
            std::string::npos);
  // The number of a row is that in the file.
  EXPECT_NE(message([&] { data_of("skip").prepare(); }).find("broken.csv, row 6, column 'price': 1e+300"),
            std::string::npos);
  write("broken.csv", text.substr(0, text.rfind("a6")));
  TableData data = data_of("skip");
  const std::vector<std::string> warnings = warnings_of([&] { data.prepare(); });
  ASSERT_EQ(warnings.size(), 2U);  // and one about an unknown city
  EXPECT_TRUE(warnings[0].starts_with("data.on_broken: skipped 3 of 5 rows, which cannot be used:"))
      << warnings[0];
  EXPECT_TRUE(
      same_raw(first(data.train_dataloader())[0], at::tensor({1., 0., 10.}, at::kDouble).unsqueeze(0)));
  EXPECT_EQ(first(data.val_dataloader())[1].item<float>(), 500);
  EXPECT_EQ(data.predict_ids().values, std::vector<std::string>{"a5"});
  ASSERT_EQ(data.skipped_samples().size(), 3U);
  EXPECT_EQ(without_folder(data.skipped_samples()[2]),
            "broken.csv, row 4, column 'price': the value to predict is missing; expected: a value in every "
            "row; fill it in, or remove the row");
  // Predictions belong to rows.
  TableData predicted = data_of("skip");
  predicted.restore_input_transform(data.schema().text());
  predicted.predict_from(file);
  EXPECT_NE(message([&] { predicted.predict_dataloader(); }).find("row 2 (line 3)"), std::string::npos);
  write("broken.csv", "row,rooms,city,age,price\na1,1,Bern,10,\n");
  EXPECT_NE(message([&] {
              data_of("skip").prepare();
            }).find("no row can be used; the first error: broken.csv, row 1"),
            std::string::npos);
}

TEST_F(TableFile, LeavesOutRowsWithoutAValueToPredict) {
  TableData data({.file = write("t.csv", "x,y\n1,1\n2,\n3,3\n4,NA\n5,5\n"), .target = {"y"}},
                 {.shuffle = false});
  EXPECT_EQ(
      warnings_of([&] { data.prepare(); }),
      std::vector<std::string>{"data.on_missing_target: omitted 2 of 5 rows of t.csv without a value to "
                               "predict, the first: row 2"});
  EXPECT_TRUE(same_raw(first(data.train_dataloader())[0], at::tensor({1., 3., 5.}).unsqueeze(1)));
  ASSERT_EQ(data.skipped_samples().size(), 2u);
  EXPECT_NE(data.skipped_samples()[1].find("row 4, column 'y': the value to predict is missing"),
            std::string::npos);
  // Other broken rows still stop the run.
  TableData broken({.file = write("t.csv", "x,y\n1,1\n2\n"), .target = {"y"}});
  EXPECT_NE(message([&] { broken.prepare(); }).find("row 2 (line 3), column 'y'"), std::string::npos);
}

TEST_F(TableFile, TakesAColumnWithoutANameAsTheId) {
  const auto file = write("t.csv", "\"\",x,k\n01,1,a\n02,2,b\n");
  TableData data({.file = file, .label = "k"}, {.shuffle = false, .val = {{1, 2}}});
  data.prepare();
  EXPECT_EQ(data.schema().features.size(), 1u);
  EXPECT_EQ(data.predict_ids().name, "row");
  EXPECT_EQ(data.predict_ids().values, std::vector<std::string>{"02"});
  // A file without this column is predicted without ids, one with it has them.
  TableData other({.file = file, .label = "k"});
  other.restore_input_transform(data.schema().text());
  other.predict_from(write("p.csv", ",x\nq,3\n"));
  other.predict_dataloader();
  EXPECT_EQ(other.predict_ids().values, std::vector<std::string>{"q"});
  TableData without({.file = file, .label = "k"});
  without.restore_input_transform(data.schema().text());
  without.predict_from(write("p.csv", "x\n3\n"));
  without.predict_dataloader();
  EXPECT_TRUE(without.predict_ids().values.empty());

  TableData named({.file = write("n.csv", ",x,name,k\n1,1,p,a\n2,2,q,b\n"), .label = "k", .id = "name"});
  named.prepare();
  EXPECT_EQ(named.schema().features.size(), 1u);
  EXPECT_EQ(named.schema().id, "name");
  TableData asked({.file = file, .label = "k", .features = {"row", "x"}});
  asked.prepare();
  EXPECT_EQ(asked.schema().features.size(), 2u);
  EXPECT_EQ(asked.schema().id, "");
  // A delimiter at the end of each line.
  TableData empty({.file = write("e.csv", "x,k,\n1,a,\n2,b,\n"), .label = "k"});
  empty.prepare();
  EXPECT_EQ(empty.schema().features.size(), 1u);
  EXPECT_EQ(empty.schema().id, "");
}

TEST_F(TableFile, WarnsOfColumnsThatAreProbablyNotMeantSo) {
  std::string text = "n,when,unit,name,constant,mark,big,x,y\n";
  for (int i = 0; i < 40; ++i) {
    const std::string number = std::to_string(i);
    text += number + ",2026-01-" + (i < 9 ? "0" : "") + std::to_string(i + 1) + "," + number + " kg,user" +
            number + ",7," + (i % 9 == 3 ? "-999" : std::to_string(i % 5)) + ",1600000000000000" +
            std::to_string(100 + i) + "," + std::to_string(i * 7 % 11) + ",5\n";
  }
  TableData data({.file = write("t.csv", text), .target = {"y"}}, {.shuffle = false});
  std::vector<std::string> warnings = warnings_of([&] { data.prepare(); });
  const auto has = [&](const std::string& beginning) {
    return std::ranges::any_of(warnings, [&](const auto& text) { return text.starts_with(beginning); });
  };
  EXPECT_TRUE(has("t.csv, column 'n': it counts the rows"));
  EXPECT_TRUE(
      has("t.csv, column 'when': 40 of 40 values differ, and each has a column of its own; they are probably "
          "dates or times"));
  EXPECT_TRUE(
      has("t.csv, column 'unit': 40 of 40 values differ, and each has a column of its own; they are probably "
          "numbers with \"kg\": set data.units = true"));
  EXPECT_TRUE(
      has("t.csv, column 'name': 40 of 40 values differ, and each has a column of its own; they are probably "
          "names"));
  EXPECT_TRUE(has("t.csv, column 'constant': all training rows have the same value"));
  EXPECT_TRUE(has("t.csv, column 'mark': -999 lies far from all other values"));
  EXPECT_TRUE(has("t.csv, column 'big': values above 2^53 lose their last digits"));
  EXPECT_TRUE(has("t.csv, column 'y': the value to predict is 5 in all training rows"));
  EXPECT_FALSE(has("t.csv, column 'x'"));
  TableData label({.file = write("l.csv",
                                 [] {
                                   std::string rows = "x,y\n";
                                   for (int i = 0; i < 60; ++i)
                                     rows += std::to_string(i % 3) + "," + std::to_string(i) + ".5\n";
                                   return rows;
                                 }()),
                   .label = "y"});
  warnings = warnings_of([&] { label.prepare(); });
  EXPECT_TRUE(
      has("l.csv, column 'y': 60 different numbers are classes; to predict numbers, set data.target"));
}

TEST_F(TableFile, WarnsOfAHeaderThatLooksLikeValues) {
  TableData data({.file = write("t.csv", "60,2,red,y\n1,2,a,4\n5,3,b,6\n"), .target = {"y"}});
  EXPECT_EQ(warnings_of([&] { data.prepare(); }),
            std::vector<std::string>{
                "t.csv, header: 2 of 4 names are numbers, as if this were a row of values: set "
                "data.header = false if it is"});
}

TEST_F(TableFile, ExcludesColumns) {
  TableData data = houses({.exclude = {"age"}});
  data.prepare();
  ASSERT_EQ(data.schema().features.size(), 2u);
  EXPECT_EQ(data.schema().features[1].name, "city");
  EXPECT_NE(message([&] {
              houses({.exclude = {"agee"}}).prepare();
            }).find("data.exclude: houses.csv has no column"),
            std::string::npos);
}

TEST_F(TableFile, RegistersItsTransformWithAModel) {
  TableData data = houses();
  data.prepare();
  MlpRegressor model;
  EXPECT_EQ(input_transform_of(model), nullptr);
  set_input_transform(model, data.input_transform());
  set_input_transform(model, data.input_transform());
  EXPECT_EQ(input_transform_of(model), data.input_transform());
  const StateDict state = state_dict_with_transform(model);
  EXPECT_EQ(state.metadata.at("input_transform"), data.schema().text());
  EXPECT_TRUE(same(*state.find("input_transform.fill"), at::tensor({3., -1., 25.}, at::kDouble)));
}

class TableOnDevice : public OnDevice {};
KINDLING_RUN_ON_DEVICES(TableOnDevice);

TEST_P(TableOnDevice, TransformsBatchesWhereTheyAre) {
  const Scratch scratch;
  std::ofstream(scratch / "t.csv") << "x,kind,y\n1,a,0\n,b,0\n3,,0\n";
  TableData data({.file = scratch / "t.csv", .target = {"y"}, .normalize = false}, {.shuffle = false});
  data.prepare();
  Batch raw;
  data.train_dataloader()->start_epoch(0);
  data.train_dataloader()->next(raw);
  const Batch batch = data.on_after_batch_transfer(Batch{raw[0].to(device_), raw[1].to(device_)});
  EXPECT_EQ(batch[0].device(), device_);
  EXPECT_TRUE(same(batch[0].cpu(), at::tensor({1.F, 1.F, 0.F, 2.F, 0.F, 1.F, 3.F, 0.F, 0.F}).view({3, 3})));
}

// As read_arrow() makes one.
TEST_F(TableFile, MayBeInMemory) {
  const std::string text = kHouses;
  Table table = parse_table(text, "houses");
  const TableDataOptions options{
      .target = {"price"}, .categories = {"age"}, .id = "row", .rename = {{"rooms", "size"}}};
  const DataOptions shared{.shuffle = false, .train = {{0, 4}}, .val = {{4, 5}}};
  TableData in_memory(table, options, shared);
  TableDataOptions of_file = options;
  of_file.file = write("houses.csv", text);
  TableData in_file(of_file, shared);
  for (TableData* const data : {&in_memory, &in_file}) data->prepare();
  EXPECT_EQ(in_memory.schema().text(), in_file.schema().text());
  const Batch read = first(in_memory.train_dataloader()), expected = first(in_file.train_dataloader());
  EXPECT_TRUE(same_raw(read[0], expected[0]));
  EXPECT_TRUE(read[1].equal(expected[1]));
  EXPECT_EQ(in_memory.val_ids().values, std::vector<std::string>{"a5"});

  table.columns.pop_back();  // without the price
  in_memory.predict_from(table);
  EXPECT_EQ(first(in_memory.predict_dataloader())[0].size(0), 5);
  EXPECT_EQ(in_memory.predict_ids().values.front(), "a1");
  in_memory.predict_from(parse_table("row,rooms,city,age\nb1,2,Chur,20\n", "more houses"));
  EXPECT_EQ(first(in_memory.predict_dataloader())[0].size(0), 1);
  EXPECT_EQ(in_memory.predict_ids().values, std::vector<std::string>{"b1"});
  in_memory.predict_from(write("new.csv", "row,rooms,city,age\nc1,2,Chur,20\nc2,2,Chur,20\n"));
  EXPECT_EQ(first(in_memory.predict_dataloader())[0].size(0), 2);
  EXPECT_EQ(in_memory.predict_ids().values, (std::vector<std::string>{"c1", "c2"}));

  const auto refusal_of = [&](const TableDataOptions& wrong) {
    return message([&] { TableData(parse_table(text, "houses"), wrong, shared).prepare(); });
  };
  EXPECT_EQ(refusal_of({.target = {"price"}, .numbers = {"city"}}),
            "the table, column 'city': its values are texts; expected: numbers");
  EXPECT_EQ(
      refusal_of({.target = {"prices"}}),
      "data.target: the table has no column 'prices'; expected: one of row, rooms, city, age, price; did you "
      "mean 'price'?");
}

}  // namespace
}  // namespace kindling
