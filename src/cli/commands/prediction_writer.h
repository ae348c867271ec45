#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands/prediction_file.h"
#include "formats/arrays/row_writer.h"
#include "kindling/data/data_module.h"
#include "kindling/data/prediction_origin.h"

namespace kindling {

// True for .npy, HDF5 and NetCDF, which PredictionWriter writes.
bool is_written_in_parts(const std::filesystem::path& file);
// Throws ConfigError for HDF5 and NetCDF if Kindling was built without the library, with its package.
void require_prediction_library(const std::filesystem::path& file);
// Throws ConfigError for a file that has the data, or that a pattern of their files would match. Paths of the
// data may be patterns.
void require_other_file(const std::filesystem::path& file,
                        const std::vector<std::filesystem::path>& data_files);

// Writes predictions batch by batch, in the order of the samples, and holds no more than a batch. The file
// gets its name in finish(); without it, none remains.
//
// A .npy file has the values, or the classes if there are no values. The others have both, further outputs
// and ids; HDF5 also has the rows of the samples, if they are not all, as `row`.
class PredictionWriter {
 public:
  struct Options {
    std::filesystem::path file{};
    std::int64_t num_samples = 0;  // that will be written
    PredictionOrigin origin{};
    SampleIds ids{};
    bool estimates_targets = false;  // the values have the unit of the targets; they are no scores of classes
  };
  explicit PredictionWriter(Options options);
  ~PredictionWriter();

  // `indices`: of the samples in their data set, int64 [samples]: those after the samples of the last call.
  // Its ids are ignored. Throws ConfigError for values that the format cannot hold, and DataError.
  void write(const Predictions& batch, const at::Tensor& indices);
  // Throws DataError unless as many samples were written as the options say.
  void finish();

 private:
  using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;
  NamedTensors columns_of(const Predictions& batch, const std::vector<std::int64_t>& rows) const;
  void begin(const NamedTensors& columns, const std::string& values_name);

  Options options_;
  at::Tensor id_numbers_{};  // undefined: the ids are texts
  std::vector<ColumnToWrite> columns_{};
  std::unique_ptr<RowWriter> writer_{};
  std::int64_t num_written_ = 0;
};

}  // namespace kindling
