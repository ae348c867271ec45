#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/data/data_module.h"
#include "kindling/data/table_data_options.h"
#include "kindling/formats/table.h"
#include "kindling/formats/table_schema.h"

namespace kindling {

// Samples from the rows of a CSV file or of JSON lines. The raw inputs are float64 [batch, features]:
// numbers, NaN where one is missing; for a category its code, the index among the categories of the training
// rows, -1 for a category that these lack, NaN if it is missing. Labels are float32 [batch, targets], or
// classes, int64 [batch].
//
// On the device, the input transform replaces missing numbers, scales all numbers, and encodes each category
// in one column per category (all zero: unknown or missing; "most_frequent" also replaces missing
// categories). It computes in float64 and returns float32. Its order is: all numbers, then the columns of
// each category. It is fitted on the training rows only and is saved with the model. Classes are sorted; all
// rows count for them.
//
// A column is too fine for float32 if its largest absolute value times 2^-24 exceeds 1e-3 of its standard
// deviation, such as Unix time. Its mean is then an offset in the schema (TableFeature::offset), and exported
// programs take float64 rows; otherwise they take float32 rows.
//
// A column without a name is the id (see table.h) if none is set. A column without any value in the training
// rows is omitted unless `features` lists it.
//
// Rows of the files for training, validation and test that lack the value to predict are omitted;
// on_broken = "skip" drops those that cannot be read (TableOptions::skips_broken), too. The rows of
// predict_from() must all be readable, because predictions belong to rows.
//
// With TableDataOptions::window, a sample is a window of consecutive rows of a series: raw inputs
// [batch, window, features], inputs of the model [batch, window, columns], and the labels of the row
// `horizon` rows after the last one. Past values of the targets and the label are features. Windows that have
// no such row, or one without a label, are omitted; predict_from() predicts every window. Samples are in the
// order of the windows' last rows, whose id, or number in the file, identifies them. No training window has a
// row that a validation window predicts. The statistics are those of the rows in training windows.
//
//   TableData data({.file = "houses.csv", .target = {"price"}, .val_fraction = 0.2});
//   auto model = std::make_shared<MlpRegressor>();
//   trainer.fit(model, data);
//   save_safetensors(state_dict_with_transform(*model), "houses.safetensors");
class KINDLING_API TableData : public DataModule {
 public:
  // Throws ConfigError.
  explicit TableData(TableDataOptions options, DataOptions data_options = {});
  // Samples from the rows of a table in memory, such as read_arrow() returns. `options.file` is its name in
  // messages, "the table" if it is empty; options that say how a file is written have no effect.
  TableData(Table table, TableDataOptions options, DataOptions data_options = {});
  ~TableData() override;

  // Reads the file, splits its rows and fits the transform; with a restored transform, files are read when
  // their loaders are requested. Throws DataError with file, row and column, and ConfigError for columns that
  // the file does not have.
  void prepare_data() override;
  std::shared_ptr<DataLoader> train_dataloader() override;
  std::shared_ptr<DataLoader> val_dataloader() override;
  std::vector<NamedLoader> more_val_dataloaders() override;
  std::shared_ptr<DataLoader> test_dataloader() override;
  std::shared_ptr<DataLoader> predict_dataloader() override;
  using DataModule::on_after_batch_transfer;
  Batch on_after_batch_transfer(Batch batch) override;

  std::shared_ptr<InputTransform> input_transform() override;
  // Takes TableSchema::text(). Throws CheckpointError.
  void restore_input_transform(const std::string& description) override;
  // Predicts the rows of another file: its columns in any order, without targets, label and group.
  void predict_from(const std::filesystem::path& file) override;
  void predict_from(Table table);
  std::vector<std::string> class_names() override;
  // Of the files that have been read.
  std::vector<std::string> skipped_samples() override;
  // Without a column of ids, the numbers of the rows in their file, counted from 1, as in messages.
  SampleIds train_ids() override;
  SampleIds val_ids() override;
  SampleIds predict_ids() override;

  // Requires prepare().
  const TableSchema& schema() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kindling
