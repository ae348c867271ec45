#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "kindling/base/export.h"
#include "kindling/data/array_data_options.h"
#include "kindling/data/data_module.h"
#include "kindling/data/prediction_origin.h"

namespace kindling {

// Samples from arrays of NumPy (.npz, .npy), safetensors, PyTorch (.pt, a dict of tensors) or HDF5, or from
// raw values (little-endian, in row-major order): inputs [samples, …] and labels [samples, …]. A batch has
// the inputs, those of `more_inputs`, and the labels.
//
// The arrays are in memory if all of them have at most 4 GiB and a quarter of the free memory together, or
// only the latter with DataOptions::resident "on". Otherwise those of more than 64 MiB stay in their files,
// except for .pt, compressed arrays and those stored by columns: each batch reads its rows, and throws
// DataError if the file has become shorter. The batches are the same.
//
// Inputs stay as they are in the file until they are on the device. There they become
// (x / divisor - mean) / std, computed in float64 and rounded to float32; only x / divisor of types of up to
// 16 bits, which float32 holds exactly, is computed in float32. Without divisor and normalize, float64
// becomes float32 when it is read, integers of 32 and 64 bits stay integers, such as tokens, and so do
// uint16, which are read as int64; booleans, bytes, int16, float16 and bfloat16 become float32, unless
// `keep_type` is set. Those of `more_inputs` keep their type, except for float64 and uint16. Labels:
// integers become int64, and [samples, 1] of them becomes [samples]; floating-point labels become float32,
// and [samples] of them becomes [samples, 1], as a regressor needs them. Of a .npz file, only the arrays with
// these names are read.
//
// Warns if float32 rounds a feature, after the scaling, by more than 1e-3 of its standard deviation; of an
// array that stays in its file, up to 256 evenly spaced samples are checked. Programs
// exported with the transforms take float32 for float64 inputs, or float64 if float32 would round a feature
// that coarsely.
//
// With `normalize_by`, the mean and the standard deviation are computed in float64 over the training samples,
// and are saved with the model.
//
// With `horizon`, samples are pairs of rows of one array, the states of a system in time: inputs are a row,
// targets the row `horizon` rows later, both float32 on the device and scaled alike. The rows are one series,
// a trajectory; or several, by numbers of series or by the first dimension of the array. Several series are
// split as a whole, the rows of a single one by time: the last ones are for validation. Training pairs have
// no rows of the validation. Predictions are in the unit of the data. More inputs have a value for each row,
// or, with the layout "series_time" and other first two dimensions than the inputs, for each series.
//
//   ArrayData data({.file = "mnist.npz", .inputs = "x_train", .labels = "y_train", .val_inputs = "x_test",
//                   .val_labels = "y_test", .divisor = 255});
class KINDLING_API ArrayData : public DataModule, public PredictionOriginSource {
 public:
  // Throws ConfigError.
  explicit ArrayData(ArrayDataOptions options, DataOptions data_options = {});
  ~ArrayData() override;

  // Reads the files. Throws DataError, which names the file and the array, and ConfigError for names that the
  // file does not have.
  void prepare_data() override;
  std::shared_ptr<DataLoader> train_dataloader() override;
  std::shared_ptr<DataLoader> val_dataloader() override;
  std::shared_ptr<DataLoader> predict_dataloader() override;
  Batch on_after_batch_transfer(Batch batch, Stage stage) override;
  Batch on_after_batch_transfer(Batch batch) override;
  at::Tensor unscale_targets(const at::Tensor& values) override;
  Rollouts rollouts() override;
  std::int64_t num_random_numbers(Stage stage) const override;
  std::shared_ptr<InputTransform> input_transform() override;
  // Takes the statistics of `normalize_by` that were saved with a model. Throws CheckpointError.
  void restore_input_transform(const std::string& description) override;
  std::optional<at::ScalarType> program_input_type() override;
  // The rows of the training samples in their arrays, counted from 0.
  SampleIds train_ids() override;
  // The targets are `labels`, or `inputs` with `horizon`, for which rows are those of the targets.
  PredictionOrigin predict_origin() override;
  // Predicts the inputs of another file with the same names.
  void predict_from(const std::filesystem::path& file) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kindling
