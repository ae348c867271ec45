#include "cli/run/finders.h"

#include <sys/mman.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <iostream>

#include "cli/run/fit_processes.h"
#include "cli/run/process_settings.h"
#include "kindling/base/file.h"
#include "kindling/base/log.h"
#include "kindling/base/number_text.h"
#include "kindling/formats/csv.h"
#include "kindling/training/threads_finder.h"
#include "kindling/training/trainer.h"

namespace kindling {
namespace {

void report(const FinderInputs& in, const std::string& finder, const std::string& text) {
  log_info(finder + ": " + text);
  if (!in.quiet) std::cout << finder << "   " << text << "\n" << std::flush;
}

std::string table_of(const LrFinderResult& result) {
  std::string text = csv_line(std::array<std::string, 3>{"lr", "loss", "smoothed_loss"});
  for (std::size_t i = 0; i < result.lrs.size(); ++i)
    text += csv_line(std::array{number_text(result.lrs[i]), number_text(result.losses[i]),
                                number_text(result.smoothed[i])});
  return text;
}

// Returns the smallest size that did not fit, or 0 if all did.
std::int64_t too_large(const BatchSizeFinderResult& found) {
  std::int64_t smallest = 0;
  for (const auto& trial : found.trials)
    if (!trial.fits && (smallest == 0 || trial.batch_size < smallest)) smallest = trial.batch_size;
  return smallest;
}

// A batch size that fits in the search must also fit in this run and when it resumes. Needed only with a
// limit: without one, the process does not survive an exhausted host memory.
void prepare_memory(RunConfig& config) {
  if (!has_memory_limit()) return;
  config.folder.compact_memory = true;
  keep_memory_compact();
}

// Takes addresses from a limited process during a search: a training needs more than its trials, such as 64
// MiB that glibc reserves for each further thread that allocates.
class ReservedAddresses {
 public:
  ReservedAddresses()
      : begin_(has_memory_limit()
                   ? ::mmap(nullptr, kNumBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                   : MAP_FAILED) {}
  ~ReservedAddresses() {
    if (begin_ != MAP_FAILED) ::munmap(begin_, kNumBytes);
  }
  ReservedAddresses(const ReservedAddresses&) = delete;
  ReservedAddresses& operator=(const ReservedAddresses&) = delete;

 private:
  static constexpr std::size_t kNumBytes = std::size_t{96} << 20;
  void* const begin_;
};

BatchSizeFinderResult found_batch_size(const FinderInputs& in) {
  const ReservedAddresses reserved;
  return find_batch_size(in.trainer, in.model, *in.data, in.config.batch_finder.options, in.stop);
}

void search_batch_size(const FinderInputs& in) {
  prepare_memory(in.config);
  const auto found = found_batch_size(in);
  if (in.stop.stop_requested()) return;
  in.config.take_batch_size(found.batch_size);
  in.data = in.config.make_data();
  std::string text = "data.batch_size = " + std::to_string(found.batch_size);
  if (const auto size = too_large(found)) text += ", out of memory at " + std::to_string(size);
  report(in, "batch_finder", text);
}

void search_lr(const FinderInputs& in) {
  const LrFinderOptions& options = in.config.lr_finder.options;
  const LrFinderResult found = find_lr(in.trainer, in.model, *in.data, options, in.stop);
  if (in.stop.stop_requested()) return;
  write_file_atomically(in.folder.file("lr_finder.svg"), to_svg(found.chart()));
  write_file_atomically(in.folder.file("lr_finder.csv"), table_of(found));
  const auto lr = found.suggestion();
  const std::string steps = std::to_string(found.lrs.size()) + " of " +
                            std::to_string(options.num_training_steps) + " steps, lr_finder.svg";
  const bool is_used = in.config.lr_finder.use.update_attr;
  if (lr)
    report(in, "lr_finder",
           (is_used ? "optimizer.lr = " : "suggests ") + short_text(*lr, 4) + " instead of " +
               short_text(found.initial_lr, 4) + ", " + steps);
  else
    log_warning(
        "lr_finder: no suggestion, because the loss never falls or there are too few steps; the run "
        "keeps the learning rate of the config; " +
        steps);
  in.config.take_lr(is_used ? lr : std::nullopt, found.initial_lr);
}

std::string text_of(const ThreadsFinderResult& found) {
  std::string text = "trainer.num_threads = " + std::to_string(found.num_threads) + ", because a step takes";
  for (const auto& [num_threads, seconds_per_step] : found.trials)
    text += (num_threads == 1 ? " " : ", ") + short_text(1e3 * seconds_per_step, 3) + " ms with " +
            std::to_string(num_threads);
  return text;
}

}  // namespace

void choose_threads(const FinderInputs& in) {
  const bool is_set = in.trainer.num_threads || std::getenv("OMP_NUM_THREADS") != nullptr;
  const bool is_skipped = is_set || in.trainer.fast_dev_run || in.stop.stop_requested();
  if (largest(in.trainer.process_group, is_skipped ? 1 : 0) > 0) return;
  const ThreadsFinderResult found = find_num_threads(in.trainer, in.model, *in.data, in.stop);
  if (found.trials.empty()) return;
  in.config.trainer.options.num_threads = found.num_threads;
  in.folder.write_config(in.config.text());
  report(in, "threads", text_of(found));
}

void run_finders(const FinderInputs& in) {
  const auto run = [&](const char* finder, bool is_on, void (*search)(const FinderInputs&)) {
    if (!is_on || in.stop.stop_requested()) return;
    if (in.trainer.fast_dev_run) return report(in, finder, "skipped, because trainer.fast_dev_run is set");
    search(in);
    in.folder.write_config(in.config.text());
  };
  run("batch_finder", in.config.batch_finder.is_on, search_batch_size);
  run("lr_finder", in.config.lr_finder.is_on, search_lr);
}

}  // namespace kindling
