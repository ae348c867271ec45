#include "training/loop/recorded_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/joined.h"
#include "checkpoint/saved_keys.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/log.h"
#include "kindling/base/number_text.h"
#include "kindling/formats/safetensors.h"
#include "kindling/tensors/checkpoint_file.h"
#include "loggers/metric_charts.h"
#include "loggers/run_metrics.h"
#include "tensors/saved_number.h"

namespace kindling {
namespace {

constexpr std::size_t kMaxRecordsBytes = std::size_t{1} << 32;
constexpr int kBitsOfRecord = 53;  // see LogDigest::number()

// The parts of a state that a step changes. Rows of the log are compared by their digest. Random states may
// differ if nothing draws from them; if something does, it shows in the weights.
constexpr const char* kComparedParts[] = {saved_keys::kModel, saved_keys::kOptimizer, saved_keys::kOptimizers,
                                          saved_keys::kHiddenState};

bool is_compared_tensor(const std::string& name) {
  return std::ranges::any_of(kComparedParts, [&](const char* part) { return name.starts_with(part); });
}

bool has_equal_bytes(const at::Tensor& one, const at::Tensor& other) {
  if (one.scalar_type() != other.scalar_type() || one.sizes() != other.sizes()) return false;
  const at::Tensor a = one.cpu().contiguous(), b = other.cpu().contiguous();
  // memcmp() must not get the null pointers of empty tensors.
  return a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

bool is_equal_number(double a, double b) {
  return a == b || (!std::isfinite(a) && !std::isfinite(b));  // records have null for all that are not finite
}

// Counts what this process has read, not what the run has.
bool is_of_process(const std::string& name) { return is_machine_metric(name) || name == "skipped_samples"; }

std::string name_of_place(std::int64_t step, Record::Kind kind) {
  return "step " + std::to_string(step) +
         (kind == Record::Kind::epoch        ? ", at the end of its epoch"
          : kind == Record::Kind::validation ? ", in its validation"
                                             : "");
}

Progress progress_in(const StateDict& saved) {
  const auto number = [&](const char* key) {
    return number_of<std::int64_t>(saved.metadata, key, {.min = 0});
  };
  return {.epoch = number(saved_keys::kEpoch),
          .batch = number(saved_keys::kBatch),
          .global_step = number(saved_keys::kGlobalStep)};
}

// After the same step, one of them before the end of its epoch and the other one after it.
bool are_around_epoch_end(const Progress& one, const Progress& other) {
  const Progress &before = one.epoch < other.epoch ? one : other,
                 &after = one.epoch < other.epoch ? other : one;
  return after.epoch == before.epoch + 1 && after.batch == 0;
}

std::string place_text(const Progress& at) {
  return "batch " + std::to_string(at.batch) + " of epoch " + std::to_string(at.epoch + 1);
}

// Each rank has its own batches and random numbers.
void require_ranks(const std::filesystem::path& checkpoint, const std::filesystem::path& run,
                   std::int64_t num_ranks) {
  const std::int64_t number =
      find_number<std::int64_t>(SafetensorsFile(checkpoint).index().metadata, saved_keys::kProcesses)
          .value_or(1);
  if (number == num_ranks) return;
  throw ConfigError({.place = run.string(),
                     .found = "it was trained by " + counted(number, "rank") + ", and this is a replay on " +
                              std::to_string(num_ranks),
                     .wanted = "as many ranks"});
}

void require_known_batches(const std::filesystem::path& checkpoint, const std::filesystem::path& run) {
  if (!SafetensorsFile(checkpoint).index().metadata.contains(saved_keys::kCustomBatches)) return;
  throw ConfigError({.place = run.string(),
                     .found = "its batches came from a custom training loop, through prepare_batch()",
                     .wanted = "a run of Trainer::fit(), whose data return every batch again",
                     .remedy = "bring the batches as a DataModule, and train with fit()"});
}

std::string text_in(const StateDict& state, const char* key) {
  const auto found = state.metadata.find(key);
  return found == state.metadata.end() ? std::string() : found->second;
}

}  // namespace

RecordedRun::RecordedRun(const std::filesystem::path& run, const ProcessGroup* group)
    : run_(run), is_of_first_rank_(group == nullptr || group->rank() == 0) {
  namespace fs = std::filesystem;
  if (!fs::is_directory(run))
    throw ConfigError({.place = run.string(),
                       .found = "no such directory",
                       .wanted = "the directory of a run, with its checkpoints and its metrics.jsonl"});
  const fs::path inside = run / "checkpoints";
  checkpoints_ = list_checkpoints(fs::is_directory(inside) ? inside : run);
  if (!checkpoints_.empty())
    std::erase_if(checkpoints_, [id = checkpoints_.front().run_id](const CheckpointInfo& info) {
      return info.run_id != id;
    });
  if (!checkpoints_.empty()) {
    require_ranks(checkpoints_.front().path, run, group == nullptr ? 1 : group->size());
    require_known_batches(checkpoints_.front().path, run);
  }
  read_records(run / "metrics.jsonl");
}

void RecordedRun::read_records(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) return;
  const std::string text = read_file(file, kMaxRecordsBytes);
  std::int64_t latest = 0;
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    auto record = record_of_line(std::string_view(text).substr(begin, end - begin));
    if (!record) continue;                               // cut off, or damaged
    if (record->global_step < latest) records_.clear();  // the first record of another run
    latest = record->global_step;
    records_.insert_or_assign(Key(record->global_step, record->kind), std::move(*record));
  }
}

const std::optional<StateDict>& RecordedRun::start_before(std::int64_t step) {
  for (const CheckpointInfo& info : checkpoints_) {
    if (info.global_step > step) continue;
    try {
      start_ = load_checkpoint(info.path);
    } catch (const CheckpointError& error) {
      log_warning(std::string("the replay starts from an earlier checkpoint: ") + error.what());
      continue;
    }
    checkpoint_ = info.path;
    start_step_ = confirmed_step_ = info.global_step;
    check_start_digest(*start_);
    break;
  }
  return start_;
}

PassedBatches RecordedRun::passed_batches() const {
  if (checkpoints_.empty()) return {};
  StateDict saved;
  saved.metadata = SafetensorsFile(checkpoints_.front().path).index().metadata;
  return PassedBatches::load(saved);
}

// The record of the epoch that a checkpoint was saved after.
void RecordedRun::check_start_digest(const StateDict& state) const {
  const auto record = records_.find({start_step_, Record::Kind::epoch});
  const auto saved = find_number<std::int64_t>(state.metadata, saved_keys::kLogDigest);
  if (record == records_.end() || record->second.digest == 0 || !saved) return;
  const auto number = static_cast<std::int64_t>(static_cast<std::uint64_t>(*saved) >> (64 - kBitsOfRecord));
  if (number != record->second.digest)
    refuse(start_step_, "the log digest of the checkpoint is not that of the epoch's record",
           "records and checkpoints of one run");
}

void RecordedRun::check(const Record& record) {
  const auto found = records_.find({record.global_step, record.kind});
  if (found == records_.end()) return require_no_gap(record);
  check_values(record, found->second);
  check_digest(record, found->second);
  ++num_records;
  confirm(record.global_step);
}

// A run may have begun to log later, or have stopped; the interval of step records may have changed.
void RecordedRun::require_no_gap(const Record& record) const {
  if (record.kind != Record::Kind::epoch) return;
  const auto has_one = [&](const auto& is_there) {
    return std::ranges::any_of(records_, [&](const auto& one) {
      return one.first.second == record.kind && is_there(one.first.first);
    });
  };
  if (has_one([&](std::int64_t step) { return step < record.global_step; }) &&
      has_one([&](std::int64_t step) { return step > record.global_step; }))
    refuse(record.global_step, "the run has no record of " + name_of_place(record.global_step, record.kind),
           "a record, because there are earlier and later ones");
}

void RecordedRun::check_values(const Record& record, const Record& recorded) const {
  for (const auto& [name, value] : record.values) {
    const double* const former = recorded.find(name);
    if (former != nullptr && !is_of_process(name) && !is_equal_number(*former, value))
      refuse(record.global_step,
             name + " is " + number_text(value) + " at " + name_of_place(record.global_step, record.kind),
             number_text(*former) + ", which the run has recorded");
  }
}

void RecordedRun::check_digest(const Record& record, const Record& recorded) {
  if (record.digest == 0 || recorded.digest == 0) return;
  if (record.digest != recorded.digest)
    refuse(record.global_step,
           "the log digest after step " + std::to_string(record.global_step) + " is " +
               std::to_string(record.digest),
           std::to_string(recorded.digest) + ": a loss or a learning rate up to there differs");
  ++num_digests;
}

bool RecordedRun::has_state(const Progress& at) const {
  return at.global_step > start_step_ && std::ranges::any_of(checkpoints_, [&](const CheckpointInfo& info) {
           return info.global_step == at.global_step;
         });
}

void RecordedRun::check_state(const Progress& at, const StateDict& state) {
  const auto info = std::ranges::find(checkpoints_, at.global_step, &CheckpointInfo::global_step);
  StateDict saved;
  try {
    saved = load_checkpoint(info->path);
  } catch (const CheckpointError& error) {
    log_warning(std::string("not compared with the replay: ") + error.what());
    checkpoints_.erase(info);
    return;
  }
  const Progress of_run = progress_in(saved);
  if (are_around_epoch_end(of_run, at)) return;  // is compared there
  const std::string file = info->path.filename().string();
  if (of_run.epoch != at.epoch || of_run.batch != at.batch)
    refuse(at.global_step, "step " + std::to_string(at.global_step) + " ends at " + place_text(at),
           place_text(of_run) + ", as in " + file);
  check_tensors(at.global_step, state, saved, file);
  const std::string digest = text_in(saved, saved_keys::kLogDigest);
  if (!digest.empty() && is_of_first_rank_) {
    if (digest != text_in(state, saved_keys::kLogDigest))
      refuse(at.global_step,
             "the log digest after step " + std::to_string(at.global_step) + " differs, the state does not",
             "that of " + file);
    ++num_digests;
  }
  ++num_checkpoints;
  confirm(at.global_step);
}

void RecordedRun::check_tensors(std::int64_t step, const StateDict& state, const StateDict& saved,
                                const std::string& file) const {
  for (const auto& [name, tensor] : saved.tensors) {
    if (!is_compared_tensor(name)) continue;
    const at::Tensor* const own = state.find(name);
    if (own == nullptr || !has_equal_bytes(*own, tensor))
      refuse(step, "'" + name + "' differs after step " + std::to_string(step), "its values in " + file);
  }
}

std::optional<std::int64_t> RecordedRun::next_check(std::int64_t step) const {
  std::optional<std::int64_t> next;
  const auto add = [&](std::int64_t one) {
    if (one > step && (!next || one < *next)) next = one;
  };
  for (const auto& [key, record] : records_) add(key.first);
  for (const CheckpointInfo& info : checkpoints_) add(info.global_step);
  return next;
}

void RecordedRun::refuse(std::int64_t step, const std::string& found, const std::string& wanted) const {
  throw Error({.place = run_.string() + ", step " + std::to_string(step),
               .found = "the replay differs from the run: " + found,
               .wanted = wanted,
               .remedy = "steps up to " + std::to_string(confirmed_step_) +
                         " are confirmed; data, config, program or files have changed since, or the machine "
                         "computes other values (docs/guides/replaying.md)"});
}

}  // namespace kindling
