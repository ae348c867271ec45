#include "hdf5_feed.h"

#include <ATen/ops/sum.h>
#include <kindling/data/array_data.h>

#include <cstdint>
#include <filesystem>
#include <iostream>

#include "clock.h"
#include "report.h"

namespace kindling_bench {

void hdf5_feed(const Options& options) {
  constexpr std::int64_t kBatchSize = 64;
  // In order: more than the 128 MiB of decoded chunks that are kept, because each round begins again.
  const std::int64_t num_batches = options.variant == "sequential" ? 200 : 50;
  kindling::ArrayData data(
      {.file = std::filesystem::path(options.folder) / "fields.h5",
       .shuffle_chunks = options.variant == "chunks" ? 8 : 0},
      {.batch_size = kBatchSize, .shuffle = options.variant != "sequential", .num_workers = options.threads});
  data.prepare();
  const auto loader = data.train_dataloader();
  Clock clock(options);
  for (int round = 0; round < clock.rounds(); ++round) {
    clock.tick();
    std::int64_t count = 0;
    double sum = 0;
    for (const kindling::Batch& batch : *loader) {
      if (round == 0) sum += batch[0].sum(at::kDouble).item<double>();
      if (++count == num_batches) break;
    }
    clock.stop();
    if (round == 0) std::cout << "sum " << static_cast<std::int64_t>(sum) << std::endl;
  }
  clock.tick();
  report_times(options, clock, "us/sample", static_cast<double>(num_batches * kBatchSize), {});
}

}  // namespace kindling_bench
