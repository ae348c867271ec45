#include "distributed/shard_streams.h"

#include <string>

#include "checkpoint/saved_keys.h"
#include "device/random_state.h"
#include "kindling/base/error.h"
#include "tensors/state_tensors.h"

namespace kindling {
namespace {

// Returns the random state of rank 0, on every rank.
std::vector<at::Tensor> state_of_first(Device device, ProcessGroup* group) {
  std::vector<at::Tensor> own = random_state(device);
  if (group == nullptr) return own;
  StateDict packed;
  for (std::size_t i = 0; i < own.size(); ++i) packed.tensors.emplace_back(std::to_string(i), own[i]);
  const StateDict first = state_of_bytes(group->all_gather(state_bytes(packed)).front(), "rank 0");
  for (std::size_t i = 0; i < own.size(); ++i) own[i] = *first.find(std::to_string(i));
  return own;
}

}  // namespace

void ShardStreams::start(Device device, std::int64_t num_shards, ProcessGroup* group) {
  device_ = device;
  const std::int64_t own = num_shards / (group != nullptr ? group->size() : 1);
  first_ = own * (group != nullptr ? group->rank() : 0);
  const RandomStateGuard of_process(device);
  const auto base = state_of_first(device, group);
  states_.clear();
  for (std::int64_t i = 0; i < own; ++i) {
    set_random_state(device, base);
    fork_rng(device, first_ + i);
    states_.push_back(random_state(device));
  }
}

ShardStreams::Scope::Scope(ShardStreams& streams, std::int64_t i)
    : streams_(streams), i_(static_cast<std::size_t>(i)), of_process_(random_state(streams.device_)) {
  set_random_state(streams_.device_, streams_.states_[i_]);
}

ShardStreams::Scope::~Scope() {
  streams_.states_[i_] = random_state(streams_.device_);
  set_random_state(streams_.device_, of_process_);
}

std::string ShardStreams::name_of(std::size_t i, std::size_t generator) const {
  const std::int64_t shard = first_ + static_cast<std::int64_t>(i);
  return saved_keys::kGradientShards + std::to_string(shard) + "." + std::to_string(generator);
}

void ShardStreams::save(StateDict& state) const {
  for (std::size_t i = 0; i < states_.size(); ++i)
    for (std::size_t k = 0; k < states_[i].size(); ++k)
      state.tensors.emplace_back(name_of(i, k), states_[i][k]);
}

void ShardStreams::load(const StateDict& state) {
  for (std::size_t i = 0; i < states_.size(); ++i)
    for (std::size_t k = 0; k < states_[i].size(); ++k) {
      const at::Tensor* saved = state.find(name_of(i, k));
      if (saved == nullptr)
        throw CheckpointError({.place = "'" + name_of(i, k) + "'",
                               .found = "it is missing",
                               .wanted = "a run that was saved with the same gradient_shards"});
      states_[i][k] = *saved;
    }
}

}  // namespace kindling
