#pragma once

#include <string>
#include <string_view>

#include "checkpoint/checkpoint_file.h"
#include "distributed/shard_streams.h"
#include "kindling/tensors/state_dict.h"

namespace kindling {

// The names of a saved run. A checkpoint is one list of tensors and one of texts; each part of the run has a
// prefix there, and TrainState::save() lists the parts. Names of prefixes end with a dot.
namespace saved_keys {

// The model: its own weights, frozen parameters and layers, and lazy weights that had no shape yet.
inline constexpr const char *kModel = kModelPrefix, *kFrozen = "frozen.", *kFrozenLayer = "frozen_layer.",
                            *kLazy = "lazy.";
inline constexpr const char* kHiddenState = "carried.";  // kept between batches by recurrent models
inline constexpr const char* kOptimizer = "optimizer.";
inline constexpr const char* kOptimizers = "optimizers.";  // of a ManualModule; the optimizer's name follows
inline constexpr const char* kSchedule = "schedule.";
inline constexpr const char* kScaler = "scaler.";
inline constexpr const char* kLog = "log.";
inline constexpr const char* kRandom = "random.";
inline constexpr const char* kCallback = "callback.";           // the callback's number follows
inline constexpr const char* kCallbackType = "callback_type.";  // the same
inline constexpr const char *kEpoch = "progress.epoch", *kBatch = "progress.batch",
                            *kGlobalStep = "progress.global_step", *kPhase = "progress.phase",
                            *kNumBatches = "progress.num_batches", *kNumSamples = "progress.num_samples";
inline constexpr const char *kSpentTime = "spent_ms", *kEarlyStopPending = "early_stop_waits";
inline constexpr const char* kProcesses = "processes";  // how many ranks have saved it; see rank_states.h
inline std::string of_rank(std::int64_t rank) { return "rank" + std::to_string(rank) + "."; }

// Prefixes of what each rank has of its own.
inline constexpr std::string_view kPerRank[] = {kHiddenState, kLog, kRandom, ShardStreams::kPrefix};

}  // namespace saved_keys

// Adds the part's entries under a prefix.
inline void put(StateDict& state, const std::string& prefix, const StateDict& part) {
  for (const auto& [name, tensor] : part.tensors) state.tensors.emplace_back(prefix + name, tensor);
  for (const auto& [name, value] : part.metadata) state.metadata[prefix + name] = value;
}

// Returns the entries under a prefix, without it.
inline StateDict part_of(const StateDict& state, const std::string& prefix) {
  StateDict part;
  for (const auto& [name, tensor] : state.tensors)
    if (name.starts_with(prefix)) part.tensors.emplace_back(name.substr(prefix.size()), tensor);
  for (const auto& [name, value] : state.metadata)
    if (name.starts_with(prefix)) part.metadata[name.substr(prefix.size())] = value;
  return part;
}

}  // namespace kindling
