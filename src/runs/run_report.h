#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/loggers/logger.h"
#include "loggers/run_metrics.h"

namespace kindling {

struct RunReportOptions {
  bool svg = true, html = true;     // write curves.svg and report.html
  bool reads_records = true;        // on resume: metrics.jsonl has the earlier records
  bool is_final_at_finish = false;  // finish() draws the run for the last time
  std::string monitor{};            // for the best value so far
  bool higher_is_better = false;
  std::function<std::vector<std::vector<std::string>>()> layers{};  // for model.csv, called once
  std::function<double()> clock{};  // steady seconds; empty: the system's steady clock
};

// Keeps the curves of an active run in bounded memory, and draws them as curves.svg and report.html at the
// ends of epochs: first after two seconds, then at most every five seconds, and so rarely that it costs less
// than 0.1 percent of the time. A file that cannot be written is logged once and does not stop the run.
class KINDLING_API RunReport : public Logger {
 public:
  explicit RunReport(std::filesystem::path folder, RunReportOptions options = {});

  void write(const Record& record) override;
  // Reads the earlier records. The logger of metrics.jsonl has cut them back before.
  void resume_at(const Progress& at) override;
  void finish() override;
  // Draws the run for the last time. `summary`: the text that run.json will get; empty: it has it already.
  void write_final(std::string_view summary = {});

  const RunMetrics& metrics() const noexcept { return metrics_; }

 private:
  void draw(bool is_final, std::string_view summary);
  void try_to_draw(bool is_final, std::string_view summary = {});

  std::filesystem::path folder_;
  RunReportOptions options_;
  RunMetrics metrics_;
  double next_s_;
  bool has_layers_ = false, has_failed_ = false;
};

}  // namespace kindling
