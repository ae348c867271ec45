// Random generators, and the hooks by which LibTorch asks its accelerator.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/TensorBody.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include <algorithm>
#include <cstring>

#include "fake_accelerator_parts.h"

namespace kindling::fake {
namespace {

// Wraps a CPU generator: the same seed gives the CPU's numbers, and the state has the CPU's form.
class FakeGenerator final : public c10::GeneratorImpl {
 public:
  FakeGenerator(c10::DeviceIndex index, at::Generator cpu)
      : c10::GeneratorImpl(fake::device(index), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        cpu_(std::move(cpu)) {}

  const at::Generator& cpu() const { return cpu_; }

  void set_current_seed(uint64_t seed) override {
    const std::lock_guard lock(cpu_.mutex());
    cpu_.set_current_seed(seed);
  }
  void set_offset(uint64_t offset) override { cpu_.set_offset(offset); }
  uint64_t get_offset() const override { return cpu_.get_offset(); }
  uint64_t current_seed() const override { return cpu_.current_seed(); }
  uint64_t seed() override {
    const std::lock_guard lock(cpu_.mutex());
    return cpu_.seed();
  }
  void set_state(const c10::TensorImpl& state) override {
    const std::lock_guard lock(cpu_.mutex());
    cpu_.unsafeGetGeneratorImpl()->set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return cpu_.unsafeGetGeneratorImpl()->get_state();
  }

 private:
  FakeGenerator* clone_impl() const override { return new FakeGenerator(device_.index(), cpu_.clone()); }

  at::Generator cpu_;
};

at::Generator new_generator(c10::DeviceIndex index) {
  const auto on = index < 0 ? current_device() : index;
  return at::make_generator<FakeGenerator>(on, at::detail::createCPUGenerator());
}

void resize_storage(const c10::Storage& storage, size_t nbytes) {
  Capture::require_none("a tensor that grows");
  at::DataPtr resized = allocate_on(storage.device().index(), nbytes);
  finish_copies_of(storage);
  const MemoryAccess access;
  const size_t num_kept = std::min(nbytes, storage.nbytes());
  if (num_kept > 0) std::memcpy(resized.get(), storage.data(), num_kept);
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(resized));
  storage.unsafeGetStorageImpl()->set_nbytes(nbytes);
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex /*index*/) const override { return true; }
  void init() const override {}
  c10::DeviceIndex deviceCount() const override { return kDeviceCount; }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  void setCurrentDevice(c10::DeviceIndex index) const override { exchange_device(index); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override { return exchange_device(index); }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return exchange_device(index);
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    return default_generator(index < 0 ? current_device() : index);
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override { return new_generator(index); }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  c10::Device getDeviceFromPtr(void* data) const override {
    const auto index = device_of(data);
    TORCH_CHECK(index >= 0, "the pointer is not memory of the fake accelerator");
    return device(index);
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t nbytes) const override {
    resize_storage(storage, nbytes);
  }
};

}  // namespace

void install_hooks() { at::RegisterPrivateUse1HooksInterface(new Hooks); }

const at::Generator& default_generator(c10::DeviceIndex index) {
  static auto* const all = new std::array<at::Generator, kDeviceCount>{new_generator(0), new_generator(1)};
  return all->at(index);
}

const at::Generator& cpu_generator_of(const at::Generator& generator) {
  TORCH_CHECK(generator.device().is_privateuseone(), "Expected a '", kDeviceName,
              "' device type for generator but found '", generator.device().type(), "'");
  return static_cast<const FakeGenerator*>(generator.unsafeGetGeneratorImpl())->cpu();
}

}  // namespace kindling::fake
