// The cost of the spike test on a device: no wait, and no copy in addition to those of a run without it.
#include <optional>
#include <utility>

#include "fake_accelerator.h"
#include "kindling/tensors/checkpoint_file.h"
#include "support/scratch.h"
#include "training/step/spike_fit.h"

namespace kindling {
namespace {

class SpikeCounter : public Callback {
 public:
  void on_train_epoch_start(Trainer&, Module&) override { fake::reset_counts(); }
  void on_train_batch_end(Trainer&, Module&) override { loop = fake::counts(); }
  void on_epoch_end(Trainer&, Module&, const Record&) override { epoch = fake::counts(); }
  fake::Counts loop, epoch;
};

struct CountedRun {
  SpikeRun run;
  fake::Counts loop, epoch;
};

CountedRun counted_run(const std::string& mode, std::int64_t batches, std::optional<SpikeOptions> on_spike) {
  const auto counter = std::make_shared<SpikeCounter>();
  SpikeRun run = spike_run({.num_gpus = 1,
                            .accumulate_grad_batches = batches,
                            .step_graph = mode,
                            .on_spike = std::move(on_spike),
                            .callbacks = {counter}},
                           {.spikes = {27}});
  return {std::move(run), counter->loop, counter->epoch};
}

TEST(FakeSpikes, TestNeitherWaitsNorCopies) {
  for (const char* mode : {"off", "on"})
    for (const std::int64_t batches : {1, 2}) {
      const CountedRun untested = counted_run(mode, batches, {});
      for (const char* action : {"warn", "skip"}) {
        SCOPED_TRACE(std::string(mode) + ", " + action + ", " + std::to_string(batches));
        const CountedRun tested = counted_run(mode, batches, SpikeOptions{.window = 20, .action = action});
        EXPECT_EQ(value_of(tested.run.keeper->records.at(0), "spikes"), 1);
        EXPECT_EQ(tested.loop.host_waits(), 0);
        EXPECT_EQ(tested.loop.blocking_host_to_device_copies, 0);
        EXPECT_EQ(tested.loop.device_to_host_copies, untested.loop.device_to_host_copies);
        EXPECT_EQ(tested.epoch.device_to_host_copies, untested.epoch.device_to_host_copies);
        EXPECT_EQ(tested.epoch.host_waits(), untested.epoch.host_waits());
      }
    }
}

}  // namespace
}  // namespace kindling
