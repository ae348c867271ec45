#include "data/loading/array_checks.h"

#include <filesystem>
#include <string>

#include "base/joined.h"
#include "data/loading/array_series.h"
#include "data/loading/array_source.h"
#include "kindling/base/error.h"

namespace kindling {

namespace fs = std::filesystem;

void check_array_options(const ArrayDataOptions& options, const DataOptions& shared) {
  validate(options, "data");
  const auto refuse = [](const char* place, const std::string& found, const char* wanted) {
    throw ConfigError({.place = place, .found = found, .wanted = wanted});
  };
  // Each name would mean the only array of such a file.
  const auto one_array = [](const fs::path& file, const char* is_set) {
    return std::string(is_set) + ", and a " + lower_case(file.extension().string()) + " file has one array";
  };
  if (has_one_array(options.file)) {
    if (!options.labels_file && !options.horizon)
      refuse("data.labels_file", one_array(options.file, "it is not set"), "a file of the labels");
    if (!options.weights.empty())
      refuse("data.weights", one_array(options.file, "it is set"), "a .npz file with the weights");
    if (!options.more_inputs.empty())
      refuse("data.more_inputs", one_array(options.file, "it is set"), "a .npz file with all inputs");
  }
  if (has_one_array(options.file) && !options.more_channels.empty())
    refuse("data.more_channels", one_array(options.file, "it is set"), "a .npz file with all channels");
  if (has_one_array(options.labels_file.value_or(options.file)) && !options.more_label_channels.empty())
    refuse("data.more_label_channels", one_array(options.labels_file.value_or(options.file), "it is set"),
           "a .npz file with all channels");
  if (!options.val_inputs.empty() && !(options.more_channels.empty() && options.more_label_channels.empty()))
    refuse("data.more_channels", "it or more_label_channels is set, and val_inputs names one array",
           "a part of the samples for validation, such as val_fraction");
  for (const fs::path& file : {options.file, options.labels_file.value_or(options.file)})
    if (!options.val_inputs.empty() && has_one_array(file))
      refuse("data.val_inputs", one_array(file, "it is set"),
             "a .npz file with the validation samples, or a part of the samples, such as val_fraction");
  if (!options.more_inputs.empty() && !options.val_inputs.empty())
    refuse("data.more_inputs", "it is set, and val_inputs names one array",
           "a part of the samples for validation, such as val_fraction");
  if (options.keep_type && (options.divisor != 1 || options.normalize))
    refuse("data.keep_type", "it is set, and divisor or normalize, too",
           "one of them: scaled numbers are float32");
  if (options.normalize && !((*options.normalize)[1] > 0))
    refuse("data.normalize", "the standard deviation is not positive", "[mean, std] with std > 0");
  if (options.val_inputs.empty() != options.val_labels.empty())
    refuse("data", "only one of val_inputs and val_labels is set", "both or none");
  if (options.val_fraction && options.folds)
    refuse("data", "both val_fraction and folds are set", "one of them");
  const bool is_split = options.val_fraction || options.folds;
  if (is_split && (shared.train || shared.val))
    refuse("data", "val_fraction or folds, and a range of samples in train or val",
           "one way to split the samples");
  if (!options.val_inputs.empty() && (is_split || shared.val))
    refuse("data.val_inputs", "it is set, and the samples are split, too",
           "one way to get validation samples");
  if (!options.weights.empty() && shared.sampler)
    refuse("data.weights", "data.sampler is set, too", "one of them: weights draw the samples by themselves");
  if (options.shuffle_chunks > 0 && (!options.weights.empty() || shared.sampler || !shared.shuffle))
    refuse("data.shuffle_chunks", "it is set, and weights, sampler or shuffle = false, too",
           "one order of the samples");
  if (options.fill_missing && options.rollout_steps > 0)
    refuse("data.fill_missing", "rollout_steps is set, too",
           "one of them: in a rollout, outputs of cells without values would be the next inputs");
  if (options.fold != 0 && !options.folds)
    refuse("data.fold", "folds is not set", "folds = N, with fold < N");
  if (options.stratify && !is_split)
    refuse("data.stratify", "the samples are not split", "val_fraction or folds");
  check_pair_options(options, shared);
}

}  // namespace kindling
