#include "kindling/training/threads_finder.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "device/libtorch_errors.h"
#include "device/operator_threads.h"
#include "kindling/training/trainer.h"
#include "training/tuner/trial_fit.h"

namespace kindling {
namespace {

constexpr std::int64_t kSteps = 40;
constexpr double kSeconds = 0.25;       // per trial, but at least three steps
constexpr double kWorthThreads = 0.75;  // all threads must take less than this fraction of the time with one

// Times the steps and ends the fit after enough of them.
class TrialTimes : public Callback {
 public:
  void on_train_batch_end(Trainer& trainer, Module&) override {
    const auto now = std::chrono::steady_clock::now();
    if (last_) times_.push_back(std::chrono::duration<double>(now - *last_).count());
    last_ = now;
    if (!times_.empty()) total_ += times_.back();
    if (total_ >= kSeconds && times_.size() >= 2) trainer.request_stop();
  }
  double total() const noexcept { return total_; }
  // Returns the median of the second half, when memory is allocated and the step is captured; infinite
  // without a step.
  double median() const {
    std::vector<double> times(times_.begin() + static_cast<std::ptrdiff_t>(times_.size() / 2), times_.end());
    if (times.empty()) return std::numeric_limits<double>::infinity();
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    return *middle;
  }

 private:
  std::optional<std::chrono::steady_clock::time_point> last_;
  std::vector<double> times_;
  double total_ = 0;
};

}  // namespace

ThreadsFinderResult find_num_threads(const TrainerOptions& trainer, const std::shared_ptr<Module>& model,
                                     DataModule& data, const StopToken& stop) {
  return with_libtorch_errors("find_num_threads", [&] {
    const int all = at::get_num_threads();
    const ThreadsFinderResult nothing{.num_threads = all};
    TrainerOptions trial = trial_options(trainer, kSteps);
    ProcessGroup* const group = group_of(trial);
    const bool has_no_choice = all == 1 || !trial_device(trial).is_cpu() || !model->has_static_graph();
    if (largest_of_ranks(group, has_no_choice ? 1 : 0) > 0) return nothing;
    const TrialScope scope(*model, trial_device(trial));
    const OperatorThreads threads(all);
    std::vector<ThreadsFinderResult::Trial> trials{{.num_threads = 1}, {.num_threads = all}};
    double slowest = 0;
    // Trials alternate, because other processes may be running. Long steps are measured once.
    for (int round = 0; round < 2 && slowest < 2 * kSeconds; ++round)
      for (auto& [num_threads, seconds_per_step] : trials) {
        const auto times = std::make_shared<TrialTimes>();
        trial.num_threads = num_threads;
        trial.callbacks = {times, std::make_shared<StopElsewhere>(stop)};
        Trainer(trial).fit(model, data);
        if (share_stop(group, stop)) return nothing;
        const double step = largest_of_ranks(group, times->median());
        seconds_per_step = round == 0 ? step : std::min(seconds_per_step, step);
        slowest = std::max(slowest, largest_of_ranks(group, times->total()));
      }
    const bool is_worth_it = trials[1].seconds_per_step < kWorthThreads * trials[0].seconds_per_step;
    return ThreadsFinderResult{.num_threads = is_worth_it ? all : 1, .trials = std::move(trials)};
  });
}

}  // namespace kindling
