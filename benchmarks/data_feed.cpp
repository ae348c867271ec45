#include "data_feed.h"

#include <kindling/base/error.h>
#include <kindling/data/image_data.h>

#include <memory>

#include "clock.h"
#include "report.h"
#include "workloads.h"

namespace kindling_bench {
namespace {

// As the shipped image data sets do it.
class Images : public kindling::ImageData {
 public:
  Images() : ImageData({.divisor = 255}, shuffled(256)) {}

 protected:
  Split load() override {
    auto bytes = mnist_bytes_six_times();
    return {.train = {.images = bytes[0].view({-1, 1, 28, 28}), .labels = bytes[1]}, .val = {}};
  }
};

// Its batches are already floats.
class Floats : public kindling::DataModule {
 public:
  Floats() : DataModule(shuffled(256)) {}
  std::shared_ptr<kindling::DataLoader> train_dataloader() override {
    return train_loader_of(mnist_six_times());
  }
};

template <class Data>
void feed(const Options& options) {
  Data data;
  const auto loader = data.train_dataloader();
  Clock clock(options);
  for (int round = 0; round < clock.rounds(); ++round) {
    clock.tick();
    std::int64_t count = 0;
    for (const kindling::Batch& batch : *loader) count += data.on_after_batch_transfer(batch).num_samples();
    if (count != loader->dataset().size())
      throw kindling::Error(
          {.place = "data_feed", .found = "an epoch of " + std::to_string(count) + " samples"});
  }
  clock.tick();
  report_times(options, clock, "us/sample", static_cast<double>(loader->dataset().size()), {});
}

}  // namespace

void data_feed(const Options& options) {
  feed<Floats>(options);
  Options bytes = options;
  bytes.peer += "_uint8";
  feed<Images>(bytes);
}

}  // namespace kindling_bench
