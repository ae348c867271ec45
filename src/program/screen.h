#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "kindling/loggers/epoch_table.h"
#include "kindling/loggers/progress_line.h"
#include "kindling/nn/layer_summary.h"
#include "kindling/training/callback.h"
#include "program/command_line.h"

namespace kindling {

// The lines above the table.
struct Heading {
  std::string configs{};  // "digits.toml + 1 override"
  std::string run{};      // the run's folder
  std::int64_t seed = 0;
  std::string device{};  // "cpu  AMD EPYC …  24 GiB"
  std::vector<LayerRow> layers{};
};

// What a person sees of a fit: heading, epoch table and last line on stdout, the progress line on stderr.
// Never reads a tensor.
class Screen : public Callback {
 public:
  Screen(const Request& request, EpochTableOptions table);

  void show_heading(const Heading& heading);
  void show_end(const FitResult& result, const std::string& run_folder);

  void on_train_batch_end(Trainer& trainer, Module& model) override;
  void on_epoch_end(Trainer& trainer, Module& model, const Record& record) override;

  // The best epoch by the monitored value.
  struct Best {
    double value;
    std::int64_t epoch;
  };
  const std::optional<Best>& best() const noexcept { return best_; }
  const EpochTableOptions& monitored() const noexcept { return monitored_; }

 private:
  bool quiet_;
  EpochTableOptions monitored_;
  EpochTable table_;
  ProgressLine progress_;
  std::optional<Best> best_;
  double total_seconds_ = 0;
};

}  // namespace kindling
