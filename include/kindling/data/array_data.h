#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/data/data_module.h"

namespace kindling {

struct ArrayDataOptions {
  std::filesystem::path file{};  // .npz, .npy, .safetensors, .pt or raw (.bin, .raw, .dat)
  std::optional<std::filesystem::path> labels_file{};  // absent: `file`
  // Names in the files. A .npy file has none; for a raw file, the type and shape of a sample, such as
  // "float32[3, 64, 64]" or "int64".
  std::string inputs = "x", labels = "y";
  std::vector<std::string> more_inputs{};  // names of further inputs, which follow the first one in a batch
  bool keep_type = false;                  // small numbers do not become float32
  std::string val_inputs{}, val_labels{};  // of the validation samples, in the same files
  std::string weights{};  // name of an array [samples] by which training samples are drawn, in the same file
  std::optional<std::array<double, 2>> normalize{};  // mean, standard deviation
  double divisor = 1;                                // before `normalize`
  // The split, see split.h. Without it and without val_inputs, DataOptions::val is a range of samples.
  std::optional<double> val_fraction{};
  std::optional<std::int64_t> folds{};
  std::int64_t fold = 0;
  bool stratify = false;  // by the labels
  std::int64_t seed = 0;  // of the split

  static constexpr auto fields = kindling::fields(
      kindling::field(
          "file", &ArrayDataOptions::file,
          {.doc = "file of the arrays: .npz, .npy, .safetensors, .pt, or raw values (.bin, .raw, .dat)",
           .example = "\"data.npz\""}),
      kindling::field("labels_file", &ArrayDataOptions::labels_file,
                      {.doc = "file of the labels; absent: the same file", .example = "\"labels.npy\""}),
      kindling::field("inputs", &ArrayDataOptions::inputs,
                      {.doc = "name of the inputs in the file; a .npy file has no names; for a raw file, the "
                              "type and shape of a sample, such as float32[3, 64, 64]"}),
      kindling::field("more_inputs", &ArrayDataOptions::more_inputs,
                      {.doc = "names of further inputs, in the order in which a model with several inputs "
                              "takes them; they are not scaled",
                       .example = "[\"mask\"]"}),
      kindling::field("keep_type", &ArrayDataOptions::keep_type,
                      {.doc = "keep booleans, bytes and other numbers of up to 16 bits, for an exported "
                              "program that takes them; false: they become float32"}),
      kindling::field("labels", &ArrayDataOptions::labels,
                      {.doc = "name of the labels; for a raw file, their type and shape, such as int64"}),
      kindling::field(
          "val_inputs", &ArrayDataOptions::val_inputs,
          {.doc = "name of the inputs for validation, in the same file", .example = "\"x_test\""}),
      kindling::field("val_labels", &ArrayDataOptions::val_labels,
                      {.doc = "name of the labels for validation", .example = "\"y_test\""}),
      kindling::field(
          "weights", &ArrayDataOptions::weights,
          {.doc = "name of an array [samples] in the same file; each epoch draws training samples "
                  "with replacement, in proportion to it",
           .example = "\"w\""}),
      kindling::field("normalize", &ArrayDataOptions::normalize,
                      {.doc = "[mean, std], applied after the division", .example = "[0.5, 0.25]"}),
      kindling::field("divisor", &ArrayDataOptions::divisor,
                      {.doc = "number that inputs are divided by, such as 255 for bytes of pixels",
                       .min = 0,
                       .min_excluded = true}),
      kindling::field("val_fraction", &ArrayDataOptions::val_fraction,
                      {.doc = "fraction of the samples for validation",
                       .min = 0,
                       .max = 1,
                       .min_excluded = true,
                       .max_excluded = true,
                       .example = "0.2"}),
      kindling::field("folds", &ArrayDataOptions::folds,
                      {.doc = "number of folds, one of which is for validation", .min = 2, .example = "5"}),
      kindling::field("fold", &ArrayDataOptions::fold,
                      {.doc = "the fold for validation, counted from 0", .min = 0}),
      kindling::field("stratify", &ArrayDataOptions::stratify,
                      {.doc = "split each class in the same proportion"}),
      kindling::field("seed", &ArrayDataOptions::seed, {.doc = "seed of the split", .min = 0}));
};

// Samples from arrays of NumPy (.npz, .npy), safetensors or PyTorch (.pt, a dict of tensors), or from raw
// values (little-endian, in row-major order): inputs [samples, …] and labels [samples, …]. A batch has the
// inputs, those of `more_inputs`, and the labels.
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
//   ArrayData data({.file = "mnist.npz", .inputs = "x_train", .labels = "y_train", .val_inputs = "x_test",
//                   .val_labels = "y_test", .divisor = 255});
class KINDLING_API ArrayData : public DataModule {
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
  using DataModule::on_after_batch_transfer;
  Batch on_after_batch_transfer(Batch batch) override;
  std::optional<at::ScalarType> program_input_type() override;
  // Predicts the inputs of another file with the same names.
  void predict_from(const std::filesystem::path& file) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kindling
