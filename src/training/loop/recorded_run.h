#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kindling/checkpoint/checkpoint_folder.h"
#include "kindling/distributed/process_group.h"
#include "kindling/loggers/progress.h"
#include "kindling/loggers/record.h"
#include "kindling/tensors/state_dict.h"
#include "training/state/passed_batches.h"

namespace kindling {

// The records and checkpoints of a run, with which a replay is compared. Throws Error that names the first
// place where they differ.
class RecordedRun {
 public:
  // `group`: the ranks of the replay; nullptr: a single process. Throws ConfigError for a run of another
  // number of ranks, as far as its checkpoints say.
  RecordedRun(const std::filesystem::path& run, const ProcessGroup* group);

  // Loads the latest valid checkpoint with at most so many steps, and keeps it as the start of the replay.
  // Nothing: there is none.
  const std::optional<StateDict>& start_before(std::int64_t step);
  const std::filesystem::path& checkpoint() const noexcept { return checkpoint_; }
  std::int64_t start_step() const noexcept { return start_step_; }

  // The batches that the run passed over, as its latest checkpoint says.
  PassedBatches passed_batches() const;

  // True if the run has the record of a validation after this step, within the epoch.
  bool has_validation(std::int64_t step) const { return records_.contains({step, Record::Kind::validation}); }
  // Compares a record of the replay with that of the run, if there is one.
  void check(const Record& record);
  // True if the run has a checkpoint with this progress, to be compared with the state.
  bool has_state(const Progress& at) const;
  void check_state(const Progress& at, const StateDict& state);

  std::int64_t confirmed_step() const noexcept { return confirmed_step_; }
  std::int64_t num_records = 0, num_digests = 0, num_checkpoints = 0;  // that were compared
  // The first step after this one that could be compared.
  std::optional<std::int64_t> next_check(std::int64_t step) const;

 private:
  using Key = std::pair<std::int64_t, Record::Kind>;
  void read_records(const std::filesystem::path& file);
  void check_start_digest(const StateDict& state) const;
  void require_no_gap(const Record& record) const;
  void check_values(const Record& record, const Record& recorded) const;
  void check_digest(const Record& record, const Record& recorded);
  void check_tensors(std::int64_t step, const StateDict& state, const StateDict& saved,
                     const std::string& file) const;
  void confirm(std::int64_t step) { confirmed_step_ = std::max(confirmed_step_, step); }
  [[noreturn]] void refuse(std::int64_t step, const std::string& found, const std::string& wanted) const;

  std::filesystem::path run_;
  bool is_of_first_rank_;  // whose log the digests are of
  std::map<Key, Record> records_;
  std::vector<CheckpointInfo> checkpoints_;  // latest step first
  std::filesystem::path checkpoint_;
  std::optional<StateDict> start_;
  std::int64_t start_step_ = 0, confirmed_step_ = 0;
};

}  // namespace kindling
