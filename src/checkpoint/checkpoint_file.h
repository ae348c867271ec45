#pragma once

#include <cstdint>
#include <filesystem>

#include "kindling/base/error.h"
#include "kindling/base/export.h"
#include "kindling/checkpoint/checkpoint_folder.h"
#include "kindling/formats/safetensors.h"

// What a checkpoint's metadata tells to those who do not know what is saved in it.
namespace kindling {

// Raised when older versions of Kindling could not go on from a newer file.
inline constexpr std::int64_t kCheckpointFormatVersion = 1;

inline constexpr const char* kFormatVersionKey = "format_version";
inline constexpr const char* kRunIdKey = "run_id";
inline constexpr const char* kGlobalStepKey = "progress.global_step";
inline constexpr const char* kEpochKey = "progress.epoch";
inline constexpr const char* kAveragesKey = "averages";  // what the names of averaged weights begin with
inline constexpr const char* kMonitorNameKey = "monitor.name";    // with the next two, or absent
inline constexpr const char* kMonitorValueKey = "monitor.value";  // as number_text writes it
inline constexpr const char* kMonitorModeKey = "monitor.mode";    // "min" or "max": which values are better
inline constexpr const char* kModelPrefix = "model.";             // of the names of the model's own weights

// A file that is a sound checkpoint, but for a newer version of Kindling. To take an older one instead would
// be to lose what has been trained since.
class NewerCheckpointError : public CheckpointError {
 public:
  using CheckpointError::CheckpointError;
  ~NewerCheckpointError() override;
};

// Throws CheckpointError for a file without checksums or version, NewerCheckpointError.
void require_checkpoint(const SafetensorsFile& file);
// The same for a file without one of these entries.
CheckpointInfo checkpoint_info(const SafetensorsFile& file);
// Of a file by its path; its header has then been checked, its values have not.
KINDLING_API CheckpointInfo read_checkpoint_info(const std::filesystem::path& path);

}  // namespace kindling
