#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "fake_accelerator.h"
#include "training/inspect/host_wait_watch.h"

namespace kindling {
namespace {

TEST(FakeHostWaitWatch, SeesBlockingCopiesToTheHostOnly) {
  const at::Tensor on_device = at::ones({3}, at::device(fake::device(0)));
  const HostWaitWatch watch;
  const at::Tensor other = on_device.clone();
  other.copy_(on_device);
  (void)at::ones({3}).to(fake::device(0));
  EXPECT_EQ(watch.found(), "");
  (void)on_device.cpu();
  EXPECT_EQ(watch.found(), "aten::copy_");
}

TEST(FakeHostWaitWatch, IgnoresNonblockingCopies) {
  const at::Tensor on_device = at::ones({3}, at::device(fake::device(0)));
  const at::Tensor pinned = at::empty({3}, at::dtype(at::kFloat).pinned_memory(true));
  const HostWaitWatch watch;
  pinned.copy_(on_device, /*non_blocking=*/true);
  EXPECT_EQ(watch.found(), "");
}

}  // namespace
}  // namespace kindling
