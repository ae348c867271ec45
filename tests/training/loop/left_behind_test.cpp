// Trainers leak nothing over two hundred fits.
#include <ATen/DeviceAccelerator.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "kindling/models/mlp.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "training/loop/small_fit.h"

// Under the address sanitizer freed memory stays in quarantine; its leak check is the stricter test.
#if defined(__SANITIZE_ADDRESS__)
#define KINDLING_TEST_COUNTS_MEMORY 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KINDLING_TEST_COUNTS_MEMORY 0
#endif
#endif
#ifndef KINDLING_TEST_COUNTS_MEMORY
#define KINDLING_TEST_COUNTS_MEMORY 1
#endif

namespace kindling {
namespace {

constexpr int kWarmUpFits = 20, kFits = 200;

// Everything that a program would do with a Trainer, and lets go of it.
void train_once(std::int64_t num_gpus) {
  NoiseImages data(32, 8, 8);
  Trainer trainer({.max_epochs = 1,
                   .num_gpus = num_gpus,
                   .gradient_clip_val = 1,
                   .log_every_n_steps = 1,
                   .loggers = {std::make_shared<MemoryLogger>()}});
  const auto model = std::make_shared<Mlp>(MlpOptions{.hidden = {256}});
  trainer.fit(model, data);
  trainer.validate(model, data);
  trainer.predict(model, data);
}

std::int64_t entries_of(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
}

struct Holdings {
  std::int64_t device_bytes = 0, resident_bytes = 0, heap_bytes = 0, files = 0, threads = 0;
};

Holdings holdings(Device device) {
  Holdings now;
  if (!device.is_cpu())
    now.device_bytes = at::accelerator::getDeviceStats(device.index()).allocated_bytes[0].current;
  std::int64_t pages = 0, resident_pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident_pages;
  now.resident_bytes = resident_pages * ::sysconf(_SC_PAGESIZE);
  const auto heap = ::mallinfo2();
  now.heap_bytes = static_cast<std::int64_t>(heap.uordblks + heap.hblkhd);
  now.files = entries_of("/proc/self/fd");
  now.threads = entries_of("/proc/self/task");
  return now;
}

class LeftBehind : public OnDevice {};

TEST_P(LeftBehind, NoMemoryIsLeakedByTwoHundredFits) {
  for (int i = 0; i < kWarmUpFits; ++i) train_once(num_gpus_wanted());
  const Holdings before = holdings(device_);
  for (int i = 0; i < kFits; ++i) train_once(num_gpus_wanted());
  const Holdings after = holdings(device_);
  EXPECT_EQ(after.device_bytes, before.device_bytes);
  EXPECT_EQ(after.files, before.files);
  EXPECT_EQ(after.threads, before.threads);
  if (KINDLING_TEST_COUNTS_MEMORY) {
    // The smallest thing that a Trainer could leave, its log of 16 KiB, would make 3.2 MB; what LibTorch
    // and the C library keep to themselves, a cache for each thread for instance, has been seen to move by
    // 144 KB.
    EXPECT_LE(after.heap_bytes - before.heap_bytes, 1 << 20);
    // One model with gradients and Adam's state has 304 KB, 60 MB in all; freed memory that the C library has
    // not given back has been seen to grow by 0.3 MB.
    EXPECT_LE(after.resident_bytes - before.resident_bytes, 8 << 20);
  }
}

KINDLING_RUN_ON_TRAINER_DEVICES(LeftBehind);

}  // namespace
}  // namespace kindling
