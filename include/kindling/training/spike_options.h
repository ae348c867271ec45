#pragma once

#include <cstdint>
#include <string>

#include "kindling/config/options.h"

namespace kindling {

// Which losses are spikes, and what a trainer does about them (TrainerOptions::on_spike). A loss is a spike
// if it exceeds the median of the latest losses by more than `factor` times their spread: the width of the
// band around the median that has half of them. docs/guides/diverged_runs.md has the details.
struct SpikeOptions {
  double factor = 4;
  std::int64_t window = 100;  // optimizer steps, before the tested one
  // "warn": counts the step in the epoch record and names it in the log; "skip": skips its update, too;
  // "rollback": once the host sees the spike, the fit goes back to its latest checkpoint (or to its start)
  // and passes over the batches of the step; at the fourth spike after the same checkpoint it ends as
  // diverged.
  std::string action = "warn";

  static constexpr auto fields = kindling::fields(
      kindling::field(
          "factor", &SpikeOptions::factor,
          {.doc = "spreads above the median from which a loss is a spike", .min = 1, .min_excluded = true}),
      kindling::field("window", &SpikeOptions::window,
                      {.doc = "latest optimizer steps that a loss is compared with", .min = 8, .max = 10000}),
      kindling::field("action", &SpikeOptions::action,
                      {.doc = "what to do: report the step, skip its update, or go back to the latest "
                              "checkpoint and pass over its batches",
                       .choices = "warn|skip|rollback"}));
};

}  // namespace kindling
