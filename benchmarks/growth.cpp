#include "growth.h"

#include <ATen/Context.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <kindling/base/error.h>
#include <kindling/data/data_loader.h>
#include <kindling/data/dataset.h>
#include <kindling/optim/adam.h>
#include <kindling/optim/clip.h>

#include <memory>
#include <utility>

#include "clock.h"
#include "peak_memory.h"
#include "report.h"
#include "training.h"

namespace kindling_bench {
namespace {

constexpr double kMegabyte = 1e6;

// One sample per batch, or the data would grow most.
void steps(const Options& options, std::int64_t count) {
  Workload workload = tiny_mlp(regression(count, 20, 1), {.batch_size = 1, .shuffle = true});
  workload.size = count;
  const PeakMemory memory;
  train(options, workload);
  report(options, {.metric = "peak_memory", .unit = "MB", .values = {memory.bytes() / kMegabyte}});
}

void samples(const Options& options, std::int64_t count) {
  const std::vector<at::Tensor> images{at::rand({count, 784})};
  kindling::DataLoader loader(std::make_shared<kindling::TensorDataset>(images),
                              {.batch_size = 256, .shuffle = true});
  Clock clock(options);
  for (int round = 0; round < clock.rounds(); ++round) {
    clock.tick();
    std::int64_t seen = 0;
    for (const kindling::Batch& batch : loader) seen += batch.num_samples();
    if (seen != count)
      throw kindling::Error({.place = "growth", .found = "an epoch of " + std::to_string(seen) + " samples"});
  }
  clock.tick();
  report_times(options, clock, "us/sample", static_cast<double>(count), {});
}

// Clipping and Adam, on constant gradients.
void tensors(const Options& options, std::int64_t count) {
  constexpr std::int64_t kParameters = 1'024'000;
  constexpr int kSteps = 100;
  at::manual_seed(0);
  std::vector<at::Tensor> parameters;
  for (std::int64_t i = 0; i < count; ++i) {
    parameters.push_back(at::randn({kParameters / count}).requires_grad_());
    parameters.back().mutable_grad() = at::randn_like(parameters.back());
  }
  kindling::Adam optimizer(parameters, {.lr = 1e-3});
  Clock clock(options);
  for (int round = 0; round < clock.rounds(); ++round) {
    clock.tick();
    for (int step = 0; step < kSteps; ++step) {
      kindling::clip_grad_norm(optimizer.gradients(), 1.0);
      optimizer.step();
    }
  }
  clock.tick();
  report_times(options, clock, "us/step", kSteps, {});
}

void accumulate(const Options& options, std::int64_t count) {
  Workload workload = step_tiny();
  workload.accumulate_grad_batches = count;
  workload.unit = "us/batch";
  train(options, workload);
}

struct Growth {
  std::string name;
  void (*measure)(const Options& options, std::int64_t count);
  std::vector<std::int64_t> counts;
};

}  // namespace

void growth(const Options& options) {
  const std::vector<Growth> all{{"steps", steps, {100, 1000, 10'000, 100'000, 1'000'000}},
                                {"samples", samples, {6000, 60'000, 600'000}},
                                {"tensors", tensors, {4, 16, 64, 250, 1000}},
                                {"accumulate", accumulate, {1, 4, 16, 64}}};
  for (const Growth& one : all)
    for (const std::int64_t count : one.counts) {
      Options variant = options;
      variant.variant = one.name + "/" + std::to_string(count);
      const bool is_asked =
          options.variant.empty() || options.variant == one.name || options.variant == variant.variant;
      if (is_asked) one.measure(variant, count);
    }
}

}  // namespace kindling_bench
