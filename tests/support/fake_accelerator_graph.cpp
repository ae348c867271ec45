// Work that is recorded instead of being done, and done later, again and again.
#include <ATen/core/TensorBody.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <cstring>

#include "fake_accelerator_parts.h"

namespace kindling::fake {
namespace {

struct Captures {
  std::mutex mutex;
  std::shared_ptr<Capture> active;
};

Captures& captures() {
  static auto* const only = new Captures;
  return *only;
}

std::shared_ptr<Capture> active_capture() {
  const std::lock_guard lock(captures().mutex);
  return captures().active;
}

c10::Storage copy_on_cpu(const c10::Storage& storage) {
  c10::Storage copy(c10::Storage::use_byte_size_t(), storage.nbytes(), c10::GetCPUAllocator(),
                    /*resizable=*/true);
  const MemoryAccess access;
  if (storage.nbytes() > 0) std::memcpy(copy.mutable_data(), storage.data(), storage.nbytes());
  return copy;
}

}  // namespace

Capture::Capture(c10::Stream on)
    : stream_(on), generator_(cpu_generator_of(default_generator(on.device_index())).clone()) {}

void Capture::begin(std::shared_ptr<Capture> capture) {
  const std::lock_guard lock(captures().mutex);
  TORCH_CHECK(captures().active == nullptr, "the fake accelerator captures one stream at a time");
  captures().active = std::move(capture);
}

void Capture::end() {
  const std::lock_guard lock(captures().mutex);
  captures().active.reset();
}

bool Capture::is_of(const c10::Stream& stream) {
  const auto capture = active_capture();
  return capture && capture->stream_ == stream;
}

std::shared_ptr<Capture> Capture::of(c10::DeviceIndex device) {
  auto capture = active_capture();
  if (!capture || capture->stream_.device_index() != device) return nullptr;
  const c10::Stream now = current_stream(device);
  if (now.id() == 0) capture->refuse("work on the default stream");
  if (now != capture->stream_) return nullptr;
  TORCH_CHECK(!capture->has_failed(), "operation failed due to a previous error during capture");
  return capture;
}

void Capture::require_none(const char* what, const c10::Stream* stream) {
  const auto capture = active_capture();
  if (!capture) return;
  if (capture->thread_ == std::this_thread::get_id() || (stream != nullptr && *stream == capture->stream_))
    capture->refuse(what);
}

void Capture::refuse(const std::string& what) {
  {
    const std::lock_guard lock(captures().mutex);
    failure_ = what;
  }
  TORCH_CHECK(false, "operation not permitted when stream is capturing: ", what);
}

bool Capture::has_failed() const {
  const std::lock_guard lock(captures().mutex);
  return !failure_.empty();
}

Capture::Known& Capture::known(const c10::Storage& on_device) {
  Known& known = known_[on_device.unsafeGetStorageImpl()];
  if (!known.on_device) {
    known.on_device = on_device;
    known.shadow = copy_on_cpu(on_device);
    known.borrowed =
        c10::Storage(c10::Storage::use_byte_size_t(), on_device.nbytes(),
                     at::DataPtr(const_cast<void*>(on_device.data()), on_device.device()), device_allocator(),
                     /*resizable=*/false);
  }
  return known;
}

c10::Storage Capture::shadow_of(const c10::Storage& on_device) { return known(on_device).shadow; }

void Capture::own(const c10::Storage& on_device, c10::Storage shadow) {
  Known& known = known_[on_device.unsafeGetStorageImpl()];
  known.on_device = known.borrowed = on_device;
  known.shadow = shadow ? std::move(shadow) : copy_on_cpu(on_device);
}

at::TensorBase Capture::for_replay(const at::TensorBase& tensor) {
  if (!tensor.defined()) return tensor;
  const bool is_fake = tensor.device().is_privateuseone();
  at::Tensor same;
  if (is_fake)
    same = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(known(tensor.storage()).borrowed),
                                                    c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                                    tensor.dtype());
  else
    same = at::Tensor(tensor).clone();
  auto* impl = same.unsafeGetTensorImpl();
  if (is_fake) impl->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  if (tensor.is_conj()) same._set_conj(true);
  if (tensor.is_neg()) same._set_neg(true);
  return same;
}

void Capture::add(Job job) { jobs_.push_back(std::move(job)); }

void RecordedJobs::begin() {
  device_ = current_device();
  const c10::Stream stream = current_stream(device_);
  TORCH_CHECK(stream.id() != 0, "graphs must be captured on a non-default stream");
  jobs_.clear();
  capture_ = std::make_shared<Capture>(stream);
  Capture::begin(capture_);
}

void RecordedJobs::end() {
  TORCH_CHECK(capture_, "nothing is captured");
  const auto capture = std::exchange(capture_, nullptr);
  Capture::end();
  TORCH_CHECK(!capture->has_failed(), "operation failed due to a previous error during capture");
  TORCH_CHECK(current_stream(device_) == capture->stream(),
              "capture must end on the stream that it began on");
  jobs_ = capture->take_jobs();
}

void RecordedJobs::replay() {
  TORCH_CHECK(!capture_, "a graph cannot be replayed while it is captured");
  count(&Counts::launches);
  count(&Counts::graph_replays);
  finish_current_stream(device_);
  for (const Capture::Job& job : jobs_) job();
}

}  // namespace kindling::fake
