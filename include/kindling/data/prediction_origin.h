#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "kindling/base/export.h"

namespace kindling {

// Which arrays of files predictions belong to, so that a file of predictions can keep their names, units and
// coordinates. Paths may be patterns of files, whose arrays are joined.
struct PredictionOrigin {
  std::filesystem::path file{};  // of the targets; empty: not known
  std::string array{};           // name of the targets
  // The inputs, if DataModule::predict_from() has named their file; else empty.
  std::filesystem::path predicted_file{};
  std::string predicted_array{};
  std::string sample_dim{};  // of NetCDF variables, see ArrayDataOptions; empty: the first dimension
  // The row of each sample of predict_dataloader() in its array, whose state it estimates; empty: 0, 1, ….
  std::vector<std::int64_t> rows{};
  // False: samples are not rows, such as the states of arrays [series, time, …].
  bool has_rows = true;
  std::size_t num_row_dims = 1;                     // 2: [series, time, …]
  std::vector<std::filesystem::path> data_files{};  // all files of the data, which must not be overwritten
};

// A role of data modules whose targets are arrays of files.
class KINDLING_API PredictionOriginSource {
 public:
  virtual ~PredictionOriginSource();
  // Returns what the samples of predict_dataloader() belong to. Requires prepare().
  virtual PredictionOrigin predict_origin() = 0;
};

}  // namespace kindling
