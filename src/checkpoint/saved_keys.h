#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kindling::saved_keys {

// The names in a checkpoint, all of them: a checkpoint is one list of tensors and one of texts, and each part
// of a run has a prefix there. Names of prefixes end with a dot; what follows is up to the part. See
// docs/reference/checkpoint_format.md.

// Written by TrainState::save().
// The model: its own weights, frozen parameters and layers, and lazy weights that had no shape yet.
inline constexpr const char *kModel = "model.", *kFrozen = "frozen.", *kFrozenLayer = "frozen_layer.",
                            *kLazy = "lazy.";
inline constexpr const char* kHiddenState = "carried.";  // kept between batches by recurrent models
inline constexpr const char* kOptimizer = "optimizer.";
inline constexpr const char* kOptimizers = "optimizers.";  // of a ManualModule; the optimizer's name follows
inline constexpr const char* kSchedule = "schedule.";
inline constexpr const char* kScaler = "scaler.";
inline constexpr const char* kSpikes =
    "spikes.";  // latest losses; the optimizer's name follows, if it has one
inline constexpr const char* kGradientShards = "gradient_shards.";  // their random states
inline constexpr const char* kLog = "log.";
inline constexpr const char* kRandom = "random.";
inline constexpr const char* kCallback = "callback.";           // the callback's number follows
inline constexpr const char* kCallbackType = "callback_type.";  // the same
inline constexpr const char* kAverages = "averages";            // the prefix of the names of averaged weights
inline constexpr const char* kRunId = "run_id";
inline constexpr const char *kEpoch = "progress.epoch", *kBatch = "progress.batch",
                            *kGlobalStep = "progress.global_step", *kPhase = "progress.phase";
inline constexpr const char* kCustomBatches = "progress.custom_batches";  // of a loop with prepare_batch()
inline constexpr const char* kLogDigest = "progress.log_digest";          // see LogDigest
inline constexpr const char* kPassedBatches = "progress.passed_batches";  // see PassedBatches
inline constexpr const char *kSpentTime = "spent_ms", *kEarlyStopPending = "early_stop_waits";

// Written by FitLoop::save_point(): of the running epoch, and of endless data.
inline constexpr const char *kNumBatches = "progress.num_batches", *kNumSamples = "progress.num_samples",
                            *kOrder = "progress.order";

// Written by gather_state(): how many ranks have saved it, and the prefix of what a rank has of its own.
inline constexpr const char* kProcesses = "processes";
inline std::string of_rank(std::int64_t rank) { return "rank" + std::to_string(rank) + "."; }
inline constexpr std::string_view kPerRank[] = {kHiddenState, kLog, kRandom, kGradientShards};

// Written by ModelCheckpoint: the monitored value, all three or none, and texts of the program.
inline constexpr const char* kMonitorName = "monitor.name";
inline constexpr const char* kMonitorValue = "monitor.value";  // in the form of number_text()
inline constexpr const char* kMonitorMode = "monitor.mode";    // "min" or "max": which values are better
inline constexpr const char* kProgram = "program.";
inline constexpr const char* kProgramConfig = "program.config";  // `kindling fit`: the resolved config

// Written by save_checkpoint(), next to the checksums of the file.
inline constexpr const char* kFormatVersion = "format_version";

}  // namespace kindling::saved_keys
