// `dates` of a table. The values are those of Python's datetime: year, month, isoweekday(), hour,
// timestamp().
#include "data/sources/date_columns.h"

#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "formats/tables/iso_time.h"
#include "kindling/base/error.h"
#include "kindling/data/table_data.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

using Texts = std::vector<std::string>;

TEST(IsoTime, ReadsTheFormsOfTheStandard) {
  const auto seconds = [](const char* text) {
    const std::optional<IsoTime> time = iso_time(text);
    return time ? time->seconds : NAN;
  };
  EXPECT_EQ(seconds("2026-11-29"), 1795910400);
  EXPECT_EQ(seconds("2026/11/29"), 1795910400);
  EXPECT_EQ(seconds("2024-02-29T23:59:59.500+02:00"), 1709243999.5);
  EXPECT_EQ(seconds("2024-02-29 23:59:59.5+0200"), 1709243999.5);
  EXPECT_EQ(seconds("1969-12-31 22:30Z"), -5400);
  EXPECT_EQ(iso_time("2024-02-29T23:59+02:00")->day, 19782);
  EXPECT_EQ(iso_time("2024-02-29T23:59+02:00")->hour, 23);
  for (const char* const other :
       {"", "2026", "2026-1-2", "2026-13-01", "2026-02-29", "2026-11-29T", "2026-11-29 25:00", "29.11.2026",
        "2026-11-29x", "2026-11/29", "2026-11-29T10:00:00+", "2026-11-29T10:00:00Zx"})
    EXPECT_FALSE(iso_time(other).has_value()) << other;
}

class DateTable : public testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, const std::string& text) {
    write_text(scratch_ / name, text);
    return scratch_ / name;
  }
  static at::Tensor rows_in(const std::shared_ptr<DataLoader>& loader) {
    return loader->dataset().slice(0, loader->dataset().size())[0];
  }
  static Texts features_of(const TableData& data) {
    Texts names;
    for (const TableFeature& feature : data.schema().features) names.push_back(feature.name);
    return names;
  }
  const Scratch scratch_;
  const std::filesystem::path file_ =
      write("t.csv",
            "sold,x,y\n2026-11-29,1,1\n2024-02-29T23:59:59.500+02:00,2,2\n,3,3\n"
            "1969-12-31 22:30,4,4\n");
};

TEST_F(DateTable, HasColumnsOfNumbersInsteadOfDates) {
  TableData data({.file = file_, .target = {"y"}, .dates = {"sold"}}, {.shuffle = false});
  data.prepare();
  EXPECT_EQ(features_of(data),
            (Texts{"x", "sold.year", "sold.month", "sold.weekday", "sold.hour", "sold.seconds"}));
  EXPECT_TRUE(same(rows_in(data.train_dataloader()).nan_to_num(-1),
                   at::tensor({1., 2026., 11., 7.,  0.,  1795910400., 2., 2024., 2.,  4., 23., 1709243999.5,
                               3., -1.,   -1., -1., -1., -1.,         4., 1969., 12., 3., 22., -5400.},
                              at::kDouble)
                       .view({4, 6})));
  // Another program predicts another file by the description.
  TableData other({.file = "gone.csv", .target = {"y"}});
  other.restore_input_transform(data.schema().text());
  other.predict_from(
      write("new.jsonl", "{\"x\": 5, \"sold\": \"2026-11-29T01:00:00\"}\n{\"x\": 6, \"sold\": null}\n"));
  EXPECT_TRUE(same(rows_in(other.predict_dataloader()).nan_to_num(-1),
                   at::tensor({5., 2026., 11., 7., 1., 1795914000., 6., -1., -1., -1., -1., -1.}, at::kDouble)
                       .view({2, 6})));
}

// The nearest double of the seconds is midnight.
TEST_F(DateTable, HasTheDayAndHourOfTheText) {
  const auto file = write("t.csv", "sold,y\n2026-12-31T23:59:59.9999999,1\n2025-01-01T00:00:00+14:00,2\n");
  TableData data({.file = file,
                  .target = {"y"},
                  .features = {"sold.year", "sold.month", "sold.weekday", "sold.hour"},
                  .dates = {"sold"}},
                 {.shuffle = false});
  data.prepare();
  EXPECT_TRUE(same(rows_in(data.train_dataloader()),
                   at::tensor({2026., 12., 4., 23., 2025., 1., 3., 0.}, at::kDouble).view({2, 4})));
}

TEST_F(DateTable, OmitsWhatDoesNotVary) {
  const auto file = write("days.csv", "day,y\n2026-11-28,1\n2026-11-29,2\n2026-11-30,3\n");
  TableData data({.file = file, .target = {"y"}, .dates = {"day"}});
  data.prepare();
  EXPECT_EQ(features_of(data), (Texts{"day.weekday", "day.seconds"}));
  TableData listed({.file = file_, .target = {"y"}, .features = {"sold", "x"}, .dates = {"sold"}});
  listed.prepare();
  EXPECT_EQ(features_of(listed).front(), "sold.year");
  EXPECT_EQ(features_of(listed).size(), 6U);
  TableData chosen({.file = file_, .target = {"y"}, .features = {"sold.month"}, .dates = {"sold"}});
  chosen.prepare();
  EXPECT_EQ(features_of(chosen), Texts{"sold.month"});
}

TEST_F(DateTable, RefusesOtherValues) {
  const auto refusal = [&](const std::string& text, TableDataOptions options = {}) {
    options.file = write("t.csv", text);
    options.target = {"y"};
    options.dates = {"sold"};
    std::string error = error_text<Error>([&] { TableData(options).prepare(); });
    const std::string folder = scratch_.folder().string() + "/";
    for (std::size_t at = 0; (at = error.find(folder)) != std::string::npos;) error.erase(at, folder.size());
    return error;
  };
  EXPECT_EQ(refusal("sold,y\n2026-11-29,1\n29.11.2026,2\n"),
            "t.csv, row 2, column 'sold': '29.11.2026' is not a date; expected: a date such as 2026-11-29 or "
            "2026-11-29T15:30:00Z; correct it, or remove the column from data.dates");
  EXPECT_EQ(
      refusal("sold,sold.year,y\n2026-11-29,1,1\n2026-11-29,1,2\n"),  // also one that is constant
      "t.csv: the file has a column 'sold.year' already; expected: another name, because data.dates makes "
      "such a column");
  EXPECT_EQ(refusal("sold,y\n2026-11-29,1\n", {.exclude = {"sold"}}),
            "data.dates: another key, or this one twice, names 'sold'; expected: a column that only "
            "data.features or data.time name as well");
  EXPECT_EQ(refusal("date,y\n2026-11-29,1\n"),
            "data.dates: t.csv has no column 'sold'; expected: one of date, y");
  EXPECT_EQ(
      refusal("sold,y\n2026-11-29,1\n2025-11-29,1\n", {.features = {"sold", "sold.year"}}),
      "data.features: 'sold.year' is also a part of its date; expected: the date, or single parts of it");
  TableData trained(
      {.file = write("u.csv", "sold,y\n2026-11-29,1\n2025-11-29,2\n"), .target = {"y"}, .dates = {"sold"}});
  trained.prepare();
  TableData other({.file = "gone.csv", .target = {"y"}});
  other.restore_input_transform(trained.schema().text());
  other.predict_from(write("new.csv", "x\n1\n"));
  EXPECT_NE(error_text<DataError>([&] { other.predict_dataloader(); }).find("the column 'sold' is missing"),
            std::string::npos);
}

}  // namespace
}  // namespace kindling
