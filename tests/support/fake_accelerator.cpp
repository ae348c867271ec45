#include "fake_accelerator.h"

#include <ATen/Context.h>
#include <c10/core/DeviceType.h>
#include <torch/library.h>

#include <list>

#include "fake_accelerator_parts.h"

namespace kindling::fake {
namespace {

// Never freed: LibTorch's worker threads outlive main and static objects.
torch::Library& library(const char* name_space, c10::DispatchKey key) {
  static auto* const all = new std::list<torch::Library>;
  return all->emplace_back(torch::Library::IMPL, name_space, key, __FILE__, __LINE__);
}

void register_operators() {
  auto& aten = library("aten", c10::DispatchKey::PrivateUse1);
  register_fallback(library("_", c10::DispatchKey::PrivateUse1), aten);
  register_kernels(aten, library("aten", c10::DispatchKey::AutogradPrivateUse1));
  register_autocast(library("_", c10::DispatchKey::AutocastPrivateUse1),
                    library("aten", c10::DispatchKey::AutocastPrivateUse1));
}

bool install_once() {
  c10::register_privateuse1_backend(kDeviceName);
  install_memory();
  install_device_guard();
  install_hooks();
  register_operators();
  // is_pinned() says no for any memory as long as the device was not initialised.
  at::globalContext().lazyInitDevice(c10::DeviceType::PrivateUse1);
  return true;
}

}  // namespace

Ledger& ledger() {
  static auto* const only = new Ledger;
  return *only;
}

void install() {
  static const bool installed = install_once();
  (void)installed;
}

Counts counts() {
  const std::lock_guard lock(ledger().mutex);
  return ledger().counts;
}

void reset_counts() {
  const std::lock_guard lock(ledger().mutex);
  Counts fresh;
  fresh.live_bytes = fresh.peak_bytes = ledger().counts.live_bytes;
  fresh.pinned_live_bytes = ledger().counts.pinned_live_bytes;
  ledger().counts = fresh;
  ledger().operator_calls.clear();
}

int64_t operator_calls(std::string_view name) {
  const std::lock_guard lock(ledger().mutex);
  const auto found = ledger().operator_calls.find(std::string(name));
  return found == ledger().operator_calls.end() ? 0 : found->second;
}

}  // namespace kindling::fake
