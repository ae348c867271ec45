#include "nn/recomputation_scope.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <cstring>

#include "device/random_state.h"
#include "graph/operator_recorder.h"

namespace kindling {
namespace {

// The CPU's generator is among the states of every device.
std::vector<Device> devices_of(const torch::nn::Module& module, const std::vector<at::Tensor>& inputs) {
  std::vector<Device> devices;
  const auto add = [&](const at::Tensor& tensor) {
    if (tensor.defined() && !tensor.is_cpu() && std::ranges::find(devices, tensor.device()) == devices.end())
      devices.push_back(tensor.device());
  };
  std::ranges::for_each(inputs, add);
  std::ranges::for_each(module.parameters(), add);
  std::ranges::for_each(module.buffers(), add);
  if (devices.empty()) devices.push_back(cpu());
  return devices;
}

// States of generators lie in host memory.
bool is_same_state(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::ranges::equal(a, b, [](const at::Tensor& one, const at::Tensor& other) {
    return one.nbytes() == other.nbytes() &&
           std::memcmp(one.const_data_ptr(), other.const_data_ptr(), one.nbytes()) == 0;
  });
}

// Casts of weights that autocast keeps belong to the graph in which they were made: none comes into a part,
// and none leaves it.
class OwnCasts {
 public:
  explicit OwnCasts(bool is_on) : is_on_(is_on) {
    if (is_on_) at::autocast::clear_cache();
  }
  ~OwnCasts() {
    if (is_on_) at::autocast::clear_cache();
  }
  OwnCasts(const OwnCasts&) = delete;
  OwnCasts& operator=(const OwnCasts&) = delete;

 private:
  bool is_on_;
};

// The random state of a moment, until the one of now comes back.
class RandomAsThen {
 public:
  using States = std::vector<std::pair<Device, std::vector<at::Tensor>>>;
  explicit RandomAsThen(const States& then) {
    for (const auto& [device, state] : then) now_.emplace_back(device, random_state(device));
    for (const auto& [device, state] : then) set_random_state(device, state);
  }
  ~RandomAsThen() {
    for (const auto& [device, state] : now_) set_random_state(device, state);
  }
  RandomAsThen(const RandomAsThen&) = delete;
  RandomAsThen& operator=(const RandomAsThen&) = delete;

 private:
  States now_;
};

class AutocastAsThen {
 public:
  explicit AutocastAsThen(const AutocastSetting& then) : former_(AutocastSetting::now()) {
    at::autocast::increment_nesting();
    then.set();
  }
  ~AutocastAsThen() {
    former_.set();
    at::autocast::decrement_nesting();
  }
  AutocastAsThen(const AutocastAsThen&) = delete;
  AutocastAsThen& operator=(const AutocastAsThen&) = delete;

 private:
  AutocastSetting former_;
};

}  // namespace

AutocastSetting AutocastSetting::now() {
  AutocastSetting setting{.devices = {}, .caches = at::autocast::is_autocast_cache_enabled()};
  const auto add = [&](at::DeviceType device) {
    setting.devices.push_back(
        {device, at::autocast::is_autocast_enabled(device), at::autocast::get_autocast_dtype(device)});
  };
  add(at::kCPU);
  if (const auto accelerator = at::accelerator::getAccelerator()) add(*accelerator);
  return setting;
}

void AutocastSetting::set() const {
  for (const OfDevice& one : devices) {
    at::autocast::set_autocast_enabled(one.device, one.is_enabled);
    at::autocast::set_autocast_dtype(one.device, one.type);
  }
  at::autocast::set_autocast_cache_enabled(caches);
}

bool AutocastSetting::is_on() const { return std::ranges::any_of(devices, &OfDevice::is_enabled); }

ForwardMoment::ForwardMoment(const torch::nn::Module& module, const std::vector<at::Tensor>& inputs)
    : autocast_(AutocastSetting::now()), carried_(module) {
  const at::DisableRecordFunctionGuard unseen;  // a copy of what is not finite is no finding
  OperatorRecorder::refuse("a part of it is computed again under an activation checkpoint");
  for (const Device device : devices_of(module, inputs)) random_.emplace_back(device, random_state(device));
  const at::NoGradGuard no_grad;
  for (const at::Tensor& buffer : module.buffers())
    if (buffer.defined()) buffers_.push_back({buffer, buffer.clone(), buffer._version()});
}

std::vector<at::Tensor> ForwardMoment::compute(TensorFunction& forward,
                                               const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> outputs;
  {
    const OwnCasts own_casts(autocast_.is_on());
    outputs = forward(inputs);
  }
  std::erase_if(random_, [](const auto& one) { return is_same_state(one.second, random_state(one.first)); });
  std::erase_if(buffers_, [](const Buffer& one) { return one.buffer._version() == one.version; });
  return outputs;
}

// Their memory is changed for other memory and comes back: a write would be one to what other graphs have
// saved. Running statistics are written by an operator that does not say so, which is why all are put aside.
RecomputationScope::RecomputationScope(const torch::nn::Module& module, const ForwardMoment& moment)
    : moment_(moment), carried_(module) {
  const at::NoGradGuard no_grad;
  for (at::Tensor& buffer : module.buffers()) {
    if (!buffer.defined()) continue;
    buffers_.emplace_back(buffer, buffer.detach());
    const auto changed = std::ranges::find_if(
        moment.buffers_, [&](const ForwardMoment::Buffer& one) { return one.buffer.is_same(buffer); });
    buffer.set_data((changed == moment.buffers_.end() ? buffer : changed->before).clone());
  }
  moment_.carried_.put_back();
}

RecomputationScope::~RecomputationScope() {
  carried_.put_back();
  for (auto& [buffer, former] : buffers_) buffer.set_data(former);
}

std::vector<at::Tensor> RecomputationScope::compute(const TensorFunction& forward,
                                                    const std::vector<at::Tensor>& inputs) const {
  const RandomAsThen random(moment_.random_);
  const at::AutoGradMode with_gradients(true);
  const AutocastAsThen autocast(moment_.autocast_);
  const OwnCasts own_casts(moment_.autocast_.is_on());
  return forward(inputs);
}

}  // namespace kindling
