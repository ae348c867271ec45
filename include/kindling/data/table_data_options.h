#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "kindling/config/options.h"

namespace kindling {

// The options of TableData.
struct TableDataOptions {
  std::filesystem::path file{};                      // CSV or JSON lines, see table.h
  std::optional<std::filesystem::path> test_file{};  // columns in any order
  // More files to validate on. Each is a validation set with its name, without directory and extension, as
  // the suffix of its values; without another split, the first one is the main set, without a suffix.
  std::vector<std::filesystem::path> val_files{};
  std::vector<std::string> target{};                 // columns of numbers to predict
  std::string label{};                               // or the column of classes
  std::string label_separator{};                     // of several classes in one cell; empty: one class
  std::vector<std::string> features{};               // empty: all others but id, group, series, time, weights
  std::vector<std::string> exclude{};                // columns that the model does not read
  std::vector<std::string> numbers{}, categories{};  // columns whose kind is declared
  std::vector<std::string> dates{};                  // columns of dates that become columns of numbers
  std::string weights{};                             // column by which training rows are drawn
  std::string id{};                                  // column that identifies rows, for predictions
  std::string missing = "median";                    // median, mean, most_frequent, error
  bool normalize = true;                             // numbers to mean 0 and standard deviation 1
  // The split, see split.h. Without val_fraction and folds, DataOptions::val is a range of rows.
  std::optional<double> val_fraction{};
  std::optional<std::int64_t> folds{};
  std::int64_t fold = 0;
  bool stratify = false;  // by the label
  std::string group{};    // column whose equal values stay together
  // auto: random rows; with `window` the last windows; time: the last ones by `time`.
  std::string split = "auto";
  std::string time{};     // column of numbers, or of dates in the format of ISO 8601
  std::int64_t seed = 0;  // of the split
  // Samples are windows of so many consecutive rows of a series, in the order of the file or of `time`, and
  // predict the row `horizon` rows after the last one. See TableData.
  std::optional<std::int64_t> window{};
  std::int64_t horizon = 1;
  std::string series{};            // column whose equal values make a series; empty: one series
  std::string delimiter = "auto";  // auto: the header decides
  bool header = true;              // false: the columns are c1, c2, …
  std::int64_t skip_rows = 0;      // lines before the header
  std::string comment{};           // a character: lines that begin with it are skipped
  // Texts that mark a missing value, in all columns or in single ones; "auto": the usual ones.
  TextsByName na_values{};
  TextMap rename{};                        // names in the files → names in all other options
  std::string thousands{};                 // the character between groups of three digits; empty: none
  std::string decimal = ".";               // or ","
  bool units = false;                      // "12 kg", "$5.20" are numbers, if a column has one unit
  std::string on_broken = "stop";          // stop, skip
  std::string on_missing_target = "skip";  // skip, error

  static constexpr auto fields = kindling::fields(
      kindling::field("file", &TableDataOptions::file,
                      {.doc = "CSV file with a header row, or JSON lines (.jsonl, .ndjson)",
                       .example = "\"houses.csv\""}),
      kindling::field("test_file", &TableDataOptions::test_file,
                      {.doc = "file of the test samples; absent: the validation samples",
                       .example = "\"houses_test.csv\""}),
      kindling::field("val_files", &TableDataOptions::val_files,
                      {.doc = "files for validation; each further one is recorded as val_loss/NAME",
                       .example = "[\"houses_2023.csv\", \"houses_2024.csv\"]"}),
      kindling::field("target", &TableDataOptions::target,
                      {.doc = "column of numbers to predict, or a list of them", .example = "\"price\""}),
      kindling::field("label", &TableDataOptions::label,
                      {.doc = "column of classes, instead of target", .example = "\"species\""}),
      kindling::field("label_separator", &TableDataOptions::label_separator,
                      {.doc = "separates several labels in a cell, such as cat|dog; needs "
                              "model.multi_label; empty: a cell is one label",
                       .example = "\"|\""}),
      kindling::field(
          "features", &TableDataOptions::features,
          {.doc = "columns that the model reads; empty: all but target, label, id, group, series, time, and "
                  "weights; with data.window, also the target or label",
           .example = "[\"rooms\", \"age\"]"}),
      kindling::field("exclude", &TableDataOptions::exclude,
                      {.doc = "columns that the model does not read", .example = "[\"name\"]"}),
      kindling::field(
          "numbers", &TableDataOptions::numbers,
          {.doc = "columns that are numbers, whatever their values look like", .example = "[\"age\"]"}),
      kindling::field(
          "categories", &TableDataOptions::categories,
          {.doc = "columns that are categories, also if they look like numbers", .example = "[\"zip\"]"}),
      kindling::field(
          "dates", &TableDataOptions::dates,
          {.doc = "columns of dates or times such as 2026-11-29 or 2026-11-29T15:30:00Z, which become "
                  "numbers: year, month, weekday, hour, seconds",
           .example = "[\"sold\"]"}),
      kindling::field("weights", &TableDataOptions::weights,
                      {.doc = "column of numbers; each epoch draws training rows with replacement, in "
                              "proportion to it",
                       .example = "\"weight\""}),
      kindling::field("id", &TableDataOptions::id,
                      {.doc = "column that identifies rows; predictions contain it", .example = "\"row\""}),
      kindling::field("missing", &TableDataOptions::missing,
                      {.doc = "replacement of missing values, computed on the training rows",
                       .choices = "median|mean|most_frequent|error"}),
      kindling::field("normalize", &TableDataOptions::normalize,
                      {.doc = "scale numbers to mean 0 and standard deviation 1 of the training rows"}),
      kindling::field("val_fraction", &TableDataOptions::val_fraction,
                      {.doc = "fraction of the rows for validation",
                       .min = 0,
                       .max = 1,
                       .min_excluded = true,
                       .max_excluded = true,
                       .example = "0.2"}),
      kindling::field("folds", &TableDataOptions::folds,
                      {.doc = "number of folds, one of which is for validation", .min = 2, .example = "5"}),
      kindling::field("fold", &TableDataOptions::fold,
                      {.doc = "the fold for validation, counted from 0", .min = 0}),
      kindling::field("stratify", &TableDataOptions::stratify,
                      {.doc = "split each class of the label in the same proportion"}),
      kindling::field("group", &TableDataOptions::group,
                      {.doc = "column whose equal values are not split", .example = "\"owner\""}),
      kindling::field("split", &TableDataOptions::split,
                      {.doc = "which rows are for validation; auto: random ones, with data.window the last "
                              "windows; time: the last ones by data.time",
                       .choices = "auto|random|time"}),
      kindling::field("time", &TableDataOptions::time,
                      {.doc = "column by which split = \"time\" and data.window order the rows: numbers, or "
                              "dates such as 2026-11-29 or 2026-11-29T15:30:00Z",
                       .example = "\"date\""}),
      kindling::field(
          "window", &TableDataOptions::window,
          {.doc = "number of consecutive rows that a sample consists of, for forecasting; absent: "
                  "a sample is a row",
           .min = 1,
           .max = 1e9,
           .example = "16"}),
      kindling::field("horizon", &TableDataOptions::horizon,
                      {.doc = "number of rows from the last row of a window to the one that it predicts",
                       .min = 1,
                       .max = 1e9}),
      kindling::field("series", &TableDataOptions::series,
                      {.doc = "column whose equal values make a series; windows never have rows of two",
                       .example = "\"sensor\""}),
      kindling::field("seed", &TableDataOptions::seed, {.doc = "seed of the split", .min = 0}),
      kindling::field(
          "delimiter", &TableDataOptions::delimiter,
          {.doc = "character between fields of CSV: a comma, a semicolon, a tab, |, or a blank (one or "
                  "several); auto: the header decides"}),
      kindling::field("header", &TableDataOptions::header,
                      {.doc = "the first row of CSV has the names; false: they are c1, c2, and so on"}),
      kindling::field("skip_rows", &TableDataOptions::skip_rows,
                      {.doc = "number of lines of CSV before the header, which are skipped", .min = 0}),
      kindling::field(
          "comment", &TableDataOptions::comment,
          {.doc = "character that begins lines of CSV without values; empty: none", .example = "\"#\""}),
      kindling::field(
          "na_values", &TableDataOptions::na_values,
          {.doc = "texts that mark a missing value, besides NA, NaN and NULL; auto: also ?, -, None, "
                  "nil and the like; as a table, those of single columns, such as na_values.age = [\"-1\"]",
           .example = "[\"?\"]"}),
      kindling::field("rename", &TableDataOptions::rename,
                      {.doc = "new names of columns, which all other keys use, and predictions",
                       .example = "{old = \"new\"}"}),
      kindling::field(
          "thousands", &TableDataOptions::thousands,
          {.doc = "character between groups of three digits in CSV; empty: none", .example = "\",\""}),
      kindling::field("decimal", &TableDataOptions::decimal,
                      {.doc = "decimal mark of numbers in CSV: a point or a comma"}),
      kindling::field("units", &TableDataOptions::units,
                      {.doc = "read columns of numbers with one unit, such as 12 kg, 78.4% or $5,377.19, as "
                              "numbers; other units are errors then"}),
      kindling::field(
          "on_broken", &TableDataOptions::on_broken,
          {.doc = "rows that cannot be read; skip: they are dropped with a warning", .choices = "stop|skip"}),
      kindling::field("on_missing_target", &TableDataOptions::on_missing_target,
                      {.doc = "rows without a value to predict; skip: they are omitted with a warning, but "
                              "kept with label_separator",
                       .choices = "skip|error"}));
};

}  // namespace kindling
