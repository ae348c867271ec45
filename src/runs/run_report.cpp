#include "runs/run_report.h"

#include <algorithm>
#include <array>

#include "base/system.h"
#include "charts/html_page.h"
#include "kindling/base/file.h"
#include "kindling/base/log.h"
#include "loggers/event_file.h"
#include "loggers/metric_charts.h"
#include "runs/run_files.h"
#include "runs/run_page.h"

namespace kindling {
namespace {

constexpr double kFirst_s = 2, kInterval_s = 5;
constexpr double kTimesDrawing = 1000;  // at least from one to the next, in drawings: 0.1 percent
constexpr std::int64_t kRefresh_s = 5;
constexpr double kMaxAge_s = 600, kEpochsOfAge = 5;  // after which an active run has replaced its page
constexpr std::size_t kMostInOneColumn = 3;          // charts

// An epoch may take hours, and the page is replaced at its end.
double max_age_s(const RunMetrics& metrics) {
  const MetricSeries* const time = metrics.find("epoch_time_s");
  const double epoch_s = time == nullptr || time->num_not_finite() > 0 ? 0 : time->highest()->value;
  return kMaxAge_s + kEpochsOfAge * epoch_s;
}

}  // namespace

RunReport::RunReport(std::filesystem::path folder, RunReportOptions options)
    : folder_(std::move(folder)), options_(std::move(options)) {
  if (!options_.clock) options_.clock = steady_seconds;
  next_s_ = options_.clock() + kFirst_s;
}

void RunReport::write(const Record& record) {
  metrics_.add(record);
  if (record.kind != Record::Kind::epoch) return;
  const double start = options_.clock();
  if (start < next_s_) return;
  try_to_draw(/*is_final=*/false);
  const double end = options_.clock();
  next_s_ = end + std::max(kInterval_s, kTimesDrawing * (end - start));
}

void RunReport::resume_at(const Progress&) {
  const std::filesystem::path records = folder_ / "metrics.jsonl";
  std::error_code ignored;
  metrics_ = options_.reads_records && std::filesystem::exists(records, ignored)
                 ? read_metrics_file(records).metrics
                 : RunMetrics();
}

void RunReport::finish() {
  if (options_.is_final_at_finish) write_final();
}

void RunReport::write_final(std::string_view summary) { try_to_draw(/*is_final=*/true, summary); }

void RunReport::try_to_draw(bool is_final, std::string_view summary) try {
  draw(is_final, summary);
} catch (const std::exception& error) {
  if (!std::exchange(has_failed_, true))
    log_warning(std::string("the run's report cannot be written: ") + error.what());
}

void RunReport::draw(bool is_final, std::string_view summary) {
  if (options_.svg) {
    const std::array all{LabelledMetrics{"", &metrics_}};
    const auto charts = charts_of_run(metrics_, metric_names(all, /*of_machine=*/false));
    write_file_atomically(folder_ / "curves.svg",
                          to_svg_grid(charts, charts.size() > kMostInOneColumn ? 2 : 1));
  }
  if (!options_.html) return;
  if (options_.layers && !std::exchange(has_layers_, true)) write_layers(folder_, options_.layers());
  const RunPageOptions page{.refresh_s = is_final ? 0 : kRefresh_s,
                            .written_s = system_seconds(),
                            .max_age_s = max_age_s(metrics_),
                            .monitor = options_.monitor,
                            .higher_is_better = options_.higher_is_better};
  write_file_atomically(folder_ / "report.html",
                        to_html(page_of_run(read_run_files(folder_, summary), metrics_, page)));
}

}  // namespace kindling
