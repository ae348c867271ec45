#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "kindling/config/options.h"

namespace kindling {

// The options of ArrayData (array_data.h).
struct ArrayDataOptions {
  // .npz, .npy, .safetensors, .pt, HDF5 (.h5, .hdf5), NetCDF (.nc) or raw (.bin, .raw, .dat); or a pattern of
  // files, such as "runs/*.h5", whose arrays are joined along the samples.
  std::filesystem::path file{};
  std::optional<std::filesystem::path> labels_file{};  // absent: `file`
  // Names in the files; of HDF5, paths of data sets. A .npy file has none; for a raw file, the type and shape
  // of a sample, such as "float32[3, 64, 64]" or "int64".
  std::string inputs = "x", labels = "y";
  std::vector<std::string> more_inputs{};  // names of further inputs, which follow the first one in a batch
  // Names of arrays of the same type and sizes that follow `inputs` (and the targets of pairs in time) or
  // `labels` as channels: [samples, …] becomes [samples, channels, …].
  std::vector<std::string> more_channels{}, more_label_channels{};
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
  // "channels": each channel, the first dimension of a sample, to mean 0 and standard deviation 1 of the
  // training samples; "all": one mean and one deviation for all numbers. See ArrayData.
  std::optional<std::string> normalize_by{};
  std::optional<double> fill_missing{};  // takes the place of NaN in the inputs, after the scaling
  // Pairs in time: the array of the inputs has the targets, too, `horizon` rows later. See ArrayData.
  std::optional<std::int64_t> horizon{};
  std::string layout = "time";  // of the array: [time, …], or [series, time, …] for "series_time"
  std::string series{};         // name of an array [time], integers: rows of equal numbers are a trajectory
  // The files of a pattern continue one another, as files of one time step each do; false: each ends its
  // trajectories.
  bool files_continue = false;
  double input_noise = 0;  // standard deviation of what is added to the scaled inputs in training
  // Sizes of the last dimensions of the fields that are trained on: a random part of each sample, in inputs
  // and labels the same. Empty: whole fields, as in validation and prediction.
  std::vector<std::int64_t> patch{};
  std::int64_t rollout_steps = 0;  // of the validation by rollout, see Rollouts; 0: none
  // Chunks of the inputs, which are in random order, whose samples are mixed at a time; 0: all samples are
  // shuffled.
  std::int64_t shuffle_chunks = 0;
  // Of NetCDF variables: the dimension of the samples, empty: the first one; and the package whose rules say
  // what packed and missing values are: "netcdf4" or "xarray".
  std::string sample_dim{}, decode = "netcdf4";

  static constexpr auto fields = kindling::fields(
      kindling::field(
          "file", &ArrayDataOptions::file,
          {.doc = "file of the arrays: .npz, .npy, .safetensors, .pt, HDF5 (.h5, .hdf5), NetCDF (.nc, .nc4, "
                  ".cdf), or raw values (.bin, "
                  ".raw, .dat); or a pattern such as runs/*.h5, whose files are joined along the samples",
           .example = "\"data.npz\""}),
      kindling::field("labels_file", &ArrayDataOptions::labels_file,
                      {.doc = "file of the labels; absent: the same file", .example = "\"labels.npy\""}),
      kindling::field("inputs", &ArrayDataOptions::inputs,
                      {.doc = "name of the inputs in the file, or path of a data set; a .npy file has no "
                              "names; for a raw file, the "
                              "type and shape of a sample, such as float32[3, 64, 64]"}),
      kindling::field("more_inputs", &ArrayDataOptions::more_inputs,
                      {.doc = "names of further inputs, in the order in which a model with several inputs "
                              "takes them; they are not scaled",
                       .example = "[\"mask\"]"}),
      kindling::field("more_channels", &ArrayDataOptions::more_channels,
                      {.doc = "names of arrays that follow inputs as channels, a new dimension after that of "
                              "the samples; with data.horizon, the targets have them, too",
                       .example = "[\"v\", \"pressure\"]"}),
      kindling::field("more_label_channels", &ArrayDataOptions::more_label_channels,
                      {.doc = "names of arrays that follow labels as channels", .example = "[\"v\"]"}),
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
      kindling::field(
          "normalize_by", &ArrayDataOptions::normalize_by,
          {.doc = "scale to mean 0 and standard deviation 1 of the training samples; channels: each index of "
                  "the first dimension of a sample on its own; all: all numbers alike",
           .choices = "channels|all",
           .example = "\"channels\""}),
      kindling::field("fill_missing", &ArrayDataOptions::fill_missing,
                      {.doc = "number that takes the place of missing values, NaN, in the inputs, after the "
                              "scaling; with normalize_by, they do not count in the mean and deviation",
                       .example = "0"}),
      kindling::field(
          "horizon", &ArrayDataOptions::horizon,
          {.doc = "number of rows from the inputs to the targets, both of the array `inputs`, which has the "
                  "states of a system in time; absent: targets are the labels",
           .min = 1,
           .max = 1e9,
           .example = "1"}),
      kindling::field("layout", &ArrayDataOptions::layout,
                      {.doc = "the first dimensions of `inputs` with data.horizon; series_time: [series, "
                              "time, …], for trajectories of equal length",
                       .choices = "time|series_time"}),
      kindling::field("series", &ArrayDataOptions::series,
                      {.doc = "name of an array of integers in the same file, one for each row, whose equal "
                              "values make a trajectory; with data.horizon, no pair has rows of two",
                       .example = "\"run\""}),
      kindling::field("files_continue", &ArrayDataOptions::files_continue,
                      {.doc = "with data.horizon and a pattern of files: they continue one another in the "
                              "order of their names, so that pairs may have rows of two files; false: each "
                              "file ends its trajectories"}),
      kindling::field("input_noise", &ArrayDataOptions::input_noise,
                      {.doc = "standard deviation of normal noise that is added to the scaled inputs in "
                              "training, with data.horizon",
                       .min = 0}),
      kindling::field("patch", &ArrayDataOptions::patch,
                      {.doc = "train on a random part of each field, of these sizes in its last dimensions, "
                              "the same in inputs and targets; validation and prediction have whole fields; "
                              "empty: train on whole fields, too",
                       .min = 1,
                       .example = "[64, 64]"}),
      kindling::field(
          "rollout_steps", &ArrayDataOptions::rollout_steps,
          {.doc = "each validation also feeds outputs back into the model for so many steps, with "
                  "data.horizon, and records the error of each step; 0: not",
           .min = 0,
           .max = 1e5}),
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
      kindling::field("seed", &ArrayDataOptions::seed, {.doc = "seed of the split", .min = 0}),
      kindling::field(
          "shuffle_chunks", &ArrayDataOptions::shuffle_chunks,
          {.doc = "shuffle the chunks of an HDF5 file, and mix the samples of so many chunks at a "
                  "time, so that each is decoded once; 0: shuffle all samples",
           .min = 0}),
      kindling::field(
          "sample_dim", &ArrayDataOptions::sample_dim,
          {.doc = "dimension of a NetCDF file along which the samples are; empty: the first one of "
                  "each variable",
           .example = "\"time\""}),
      kindling::field("decode", &ArrayDataOptions::decode,
                      {.doc = "the Python package whose rules say which values of a NetCDF file are missing, "
                              "and their types; xarray ignores valid_range and what was never written",
                       .choices = "netcdf4|xarray"}));
};

}  // namespace kindling
