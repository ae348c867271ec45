#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "kindling/data/data_module.h"

namespace kindling {

// The results of `kindling predict` for the samples 0, 1, … of the data, on the CPU.
struct Predictions {
  std::string name{};    // of the values: "outputs", "probabilities", "labels" of each class
  at::Tensor values{};   // [samples, …]; undefined: only labels are requested
  at::Tensor classes{};  // [samples, …], int64; -1: none; undefined: not a classifier
  // A 0 or 1 of each class, int64 [samples, classes]; undefined: a sample has one class, or classes have no
  // names.
  at::Tensor several{};
  std::vector<std::string> class_names{};                  // for CSV and JSONL; empty: classes are numbers
  SampleIds ids{};                                         // a column after the number of the sample
  std::vector<std::pair<std::string, at::Tensor>> more{};  // further outputs, for .npz and .safetensors
};

// True for a directory, which exists or ends with a slash.
bool is_mask_folder(const std::filesystem::path& path);

// Writes the classes of pixels, int64 [batch, height, width], as masks (write_mask()) into the directory:
// "a/1.png" for the name "a/1.jpg". -1, no class, becomes 255. Throws ConfigError for classes that are not
// those of pixels, or above 255.
void write_masks(const at::Tensor& classes, const std::vector<std::string>& names,
                 const std::filesystem::path& folder);

// Returns the ids as int64 [samples]; undefined if there are none, or if one is another text than its number
// ("007").
at::Tensor id_numbers_of(const SampleIds& ids);

// Throws ConfigError for other extensions than those of the formats, for formats that Kindling was built
// without, and for a file in a directory that does not exist. Accepts directories of masks.
void check_prediction_file(const std::filesystem::path& file);

// True for .npz and .safetensors, which hold several tensors of any shape.
bool keeps_tensors(const std::filesystem::path& file);

// Returns a header and a line per sample: its number, its id, the class of a classifier or its classes with |
// between them (or ;, a comma or a blank, whichever no name has), then the values.
// Throws ConfigError for values of several dimensions per sample and for complex ones.
std::string csv_of(const Predictions& predictions);

// Writes a .csv, .jsonl, .npz or .safetensors file by its extension, atomically. PredictionWriter writes the
// other formats. Ids in .npz and .safetensors are int64 if all are integers,
// otherwise texts, which .safetensors cannot hold: then a warning is logged.
void write_predictions(const Predictions& predictions, const std::filesystem::path& file);

}  // namespace kindling
