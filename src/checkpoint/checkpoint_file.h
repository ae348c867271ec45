#pragma once

#include <cstdint>
#include <filesystem>

#include "checkpoint/saved_keys.h"
#include "kindling/base/error.h"
#include "kindling/base/export.h"
#include "kindling/checkpoint/checkpoint_folder.h"
#include "kindling/formats/safetensors.h"

// The metadata of a checkpoint, which can be read without knowing the saved state.
namespace kindling {

// Incremented when older versions of Kindling could not resume from a newer file.
inline constexpr std::int64_t kCheckpointFormatVersion = 1;

// A valid checkpoint of a newer version of Kindling. Resuming from an older checkpoint instead would lose
// progress.
class NewerCheckpointError : public CheckpointError {
 public:
  using CheckpointError::CheckpointError;
  ~NewerCheckpointError() override;
};

// Throws CheckpointError for a file without checksums or version, and NewerCheckpointError.
void require_checkpoint(const SafetensorsFile& file);
// Returns the info; throws the same, also for a file without one of these entries.
CheckpointInfo checkpoint_info(const SafetensorsFile& file);
// Reads the info of a file; validates its header but not its values.
KINDLING_API CheckpointInfo read_checkpoint_info(const std::filesystem::path& path);

}  // namespace kindling
