#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "runs/git_commit.h"

// The run.json of a run directory: what is written to it, and its readers.
namespace kindling {

// A file or directory that a config names as data.
struct DataFiles {
  std::string path{};
  std::int64_t count = 0, bytes = 0;  // of a directory or a pattern, all files in it
  std::string modified{};             // the latest of their times, UTC
};

// The data of a run. Sets that the data module does not have, or whose loader throws, are absent.
struct DataSummary {
  std::string name{};                              // of the data module; empty: not known
  std::optional<std::int64_t> train{}, val{};      // samples
  std::map<std::string, std::int64_t> more_val{};  // samples of further validation sets, by name
  std::vector<std::string> class_names{};          // in the order of the labels; empty: they have none
  std::vector<DataFiles> files{};
  std::vector<std::string> skipped{};  // what is wrong with each sample that is skipped
  // XXH3-64 of the training set and of all validation sets: number, type, sizes and bytes of their tensors,
  // before the data module transforms batches. Empty unless all are tensors in memory (TensorDataset) of at
  // most kMaxChecksumBytes together.
  std::string checksum{};
  // The checksum with float64 rounded to float32, as former versions loaded it; empty: without float64. Not
  // saved.
  std::string float32_checksum{};
};

// The weights and samples of the validation report of a run that has ended (validation_report.h).
struct ValidationSummary {
  std::string weights{};  // "best": those of the best checkpoint; "last"
  std::int64_t step = 0;  // after which the model had them
  std::int64_t samples = 0;
  std::optional<double> ece{};  // the expected calibration error of a classifier
};

// Returns how data differs from that of a run's start, such as "96 training samples before and 100 now";
// empty if no known value differs.
KINDLING_API std::string difference_of(const DataSummary& before, const DataSummary& now);

// Returns a sentence per file or directory that has another size, or another time, than at the run's start.
KINDLING_API std::vector<std::string> changed_files(const std::vector<DataFiles>& before,
                                                    const std::vector<DataFiles>& now);

// Returns the first class whose name differs, such as "class 1 was 'cat' before and is 'bird' now"; empty if
// none does, or one of the lists is empty.
KINDLING_API std::string class_difference(const std::vector<std::string>& before,
                                          const std::vector<std::string>& now);

// The run whose state a run began with, instead of a seed.
struct RunParent {
  std::string run{};      // its directory
  std::int64_t step = 0;  // after which it had that state
};

// The contents of run.json apart from times, the host's name and Kindling's version.
struct RunSummary {
  std::string status = "running";  // running, finished, stopped, diverged, failed
  std::string reason{};            // why the run ended, as FitReason; empty: still running
  std::string device{};
  std::string device_note{};  // why fewer GPUs than requested are used; empty: as requested
  std::int64_t num_processes = 1;
  std::string cpu_model{}, libtorch_version{};
  std::int64_t num_threads = 0;            // of LibTorch's operators
  std::string fast_mkl{};                  // MKL's kernels, as fast_mkl_text()
  std::string float32_matmul_precision{};  // precision of float32 matmuls
  std::int64_t seed = 0;
  std::string slurm_job{};         // of the latest start: "17", of a task of an array "17_3"; empty: none
  std::string slurm_array_task{};  // of the latest start in an array: "3"
  GitCommit git{};                 // of the project that has the config
  DataSummary data{};
  std::string best_name{};  // monitored value; empty: none
  double best_value = 0;
  std::int64_t best_epoch = 0;
  bool higher_is_better = false;
  std::map<std::string, double> metrics{};        // of the last epoch
  std::optional<ValidationSummary> validation{};  // absent: there is no report
  std::int64_t global_step = 0;
  std::optional<std::int64_t> resumed_from_step{};
  std::optional<RunParent> parent{};
  std::string last_checkpoint{}, best_checkpoint{};  // in the run's folder; empty: none
  // Of best_checkpoint. May differ from best_value, because the best epoch is not necessarily saved.
  std::int64_t best_checkpoint_step = 0;
  std::optional<double> best_checkpoint_value{};
};

// When a process started or resumed a run.
struct RunStart {
  std::chrono::system_clock::time_point date = std::chrono::system_clock::now();
  std::chrono::steady_clock::time_point time = std::chrono::steady_clock::now();  // for durations
};

// Returns the text of run.json, written now by this process.
std::string run_json(const RunSummary& summary, const RunStart& start);

// "2026-05-01T12:00:00Z"
KINDLING_API std::string utc_text(std::chrono::system_clock::time_point time);

// Returns a text from run.json, such as its "status"; empty if it is missing or cannot be read.
KINDLING_API std::string run_text(const std::filesystem::path& run, const char* key);
// Returns a whole number from it, such as its "threads"; nothing if it is missing.
KINDLING_API std::optional<std::int64_t> run_number(const std::filesystem::path& run, const char* key);
// Returns the parent of a run from it, if it has one.
KINDLING_API std::optional<RunParent> run_parent(const std::filesystem::path& run);
// Returns the data in run.json; members that are missing or cannot be read are empty.
KINDLING_API DataSummary run_data(const std::filesystem::path& run);

// What lists of many runs need of run.json and of the newest record. Missing values are empty.
struct RunRecord {
  // finished, stopped, diverged, failed, running, killed (it says running, but no process has its lock), or
  // unreadable (run.json is not a JSON object)
  std::string status{};
  std::string reason{};  // why the run ended
  std::string started{};
  std::string best_name{};
  std::optional<double> best_value{};
  std::optional<std::int64_t> best_epoch{};
  std::string best_mode{};  // min or max; empty in the records of earlier versions
  std::optional<std::int64_t> epochs{}, steps{};
  std::optional<double> seconds{};  // of the latest start or resume
};

// Returns what the directory records; nothing if it has no run.json. Writes nothing, takes no lock and never
// throws for the contents of files.
std::optional<RunRecord> read_run_record(const std::filesystem::path& run);

}  // namespace kindling
