#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "fake_accelerator.h"
#include "training/inspect/host_wait_watch.h"

namespace kindling {
namespace {

TEST(FakeHostWaitWatch, SeesBlockingCopiesToTheHostOnly) {
  const at::Tensor on_device = at::ones({3}, at::device(fake::device(0)));
  const HostCaller caller(HostCaller::kTrainingStep);
  const HostWaitWatch watch(fake::device(0));
  const at::Tensor other = on_device.clone();
  other.copy_(on_device);
  (void)at::ones({3}).to(fake::device(0));
  EXPECT_TRUE(watch.found().empty());
  (void)on_device.cpu();
  ASSERT_EQ(watch.found().size(), 1U);
  EXPECT_EQ(watch.found()[0].op, "aten::copy_");
}

TEST(FakeHostWaitWatch, IsSilentAboutTensorsOnTheHost) {
  const at::Tensor on_host = at::ones({1}), on_device = at::ones({1}, at::device(fake::device(0)));
  const HostCaller caller(HostCaller::kTrainingStep);
  const HostWaitWatch watch(fake::device(0));
  (void)on_host.item<float>();
  (void)on_host.equal(on_host);
  EXPECT_TRUE(watch.found().empty());
  (void)on_device.item<float>();
  ASSERT_EQ(watch.found().size(), 1U);
  EXPECT_EQ(watch.found()[0].op, "aten::item");
}

TEST(FakeHostWaitWatch, IgnoresNonblockingCopies) {
  const at::Tensor on_device = at::ones({3}, at::device(fake::device(0)));
  const at::Tensor pinned = at::empty({3}, at::dtype(at::kFloat).pinned_memory(true));
  const HostCaller caller(HostCaller::kTrainingStep);
  const HostWaitWatch watch(fake::device(0));
  pinned.copy_(on_device, /*non_blocking=*/true);
  EXPECT_TRUE(watch.found().empty());
}

}  // namespace
}  // namespace kindling
