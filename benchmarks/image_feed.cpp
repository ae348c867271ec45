#include "image_feed.h"

#include <ATen/ops/sum.h>
#include <kindling/base/error.h>
#include <kindling/data/image_folder.h>

#include <iostream>

#include "clock.h"
#include "report.h"

namespace kindling_bench {

void image_feed(const Options& options) {
  kindling::ImageFolderOptions files{.root = options.folder, .channels = 3};
  if (!options.variant.empty()) {
    const std::int64_t size = std::stoll(options.variant);
    files.size = {{size, size}};
  }
  kindling::ImageFolder data(files, {.batch_size = 64, .num_workers = options.threads});
  const auto loader = data.train_dataloader();
  Clock clock(options);
  for (int round = 0; round < clock.rounds(); ++round) {
    clock.tick();
    std::int64_t count = 0, sum = 0;
    for (const kindling::Batch& batch : *loader) {
      count += batch.num_samples();
      if (round == 0) sum += batch[0].sum().item<std::int64_t>();
    }
    clock.stop();
    if (count != loader->dataset().size())
      throw kindling::Error(
          {.place = "image_feed", .found = "an epoch of " + std::to_string(count) + " samples"});
    if (round == 0) std::cout << "sum " << sum << std::endl;
  }
  clock.tick();
  report_times(options, clock, "us/image", static_cast<double>(loader->dataset().size()), {});
}

}  // namespace kindling_bench
