#include "training/rank_states.h"

#include <algorithm>
#include <string_view>

#include "kindling/base/error.h"
#include "tensors/state_tensors.h"
#include "training/state_parts.h"
#include "training/train_state.h"

namespace kindling {
namespace {

constexpr const char* kProcesses = "processes";

std::string prefix_of(std::int64_t rank) { return "rank" + std::to_string(rank) + "."; }

bool is_own(const std::string& name) {
  return std::ranges::any_of(TrainState::kOwnPrefixes,
                             [&](std::string_view prefix) { return name.starts_with(prefix); });
}

StateDict own_part(const StateDict& state) {
  StateDict part;
  for (const auto& item : state.tensors)
    if (is_own(item.first)) part.tensors.push_back(item);
  for (const auto& item : state.metadata)
    if (is_own(item.first)) part.metadata.insert(item);
  return part;
}

std::int64_t num_processes(const StateDict& saved) {
  const auto found = saved.metadata.find(kProcesses);
  return found == saved.metadata.end() ? 1 : std::stoll(found->second);
}

void replace_own(StateDict& state, const StateDict& part) {
  std::erase_if(state.tensors, [](const auto& item) { return is_own(item.first); });
  std::erase_if(state.metadata, [](const auto& item) { return is_own(item.first); });
  put(state, {}, part);
}

bool is_between_epochs(const StateDict& saved) {
  const auto batch = saved.metadata.find("progress.batch"), phase = saved.metadata.find("progress.phase");
  return batch != saved.metadata.end() && batch->second == "0" && phase != saved.metadata.end() &&
         phase->second == "training";
}

// The random states of gradient shards belong to no process.
void add(StateDict& all, const std::string& prefix, const StateDict& part) {
  for (const auto& [name, tensor] : part.tensors)
    all.tensors.emplace_back(name.starts_with(ShardStreams::kPrefix) ? name : prefix + name, tensor);
  for (const auto& [name, value] : part.metadata) all.metadata[prefix + name] = value;
}

}  // namespace

StateDict state_of_all(const StateDict& own, ProcessGroup& group) {
  const auto parts = group.all_gather(state_bytes(own_part(own)));
  StateDict all = own;
  const auto part = [&](std::int64_t rank) {
    return state_of_bytes(parts[static_cast<std::size_t>(rank)],
                          "the state of process " + std::to_string(rank));
  };
  if (group.rank() != 0) replace_own(all, part(0));
  for (std::int64_t rank = 1; rank < group.size(); ++rank) add(all, prefix_of(rank), part(rank));
  all.metadata[kProcesses] = std::to_string(group.size());
  return all;
}

StateDict own_state(const StateDict& saved, const ProcessGroup* group) {
  const std::int64_t size = group != nullptr ? group->size() : 1, rank = group != nullptr ? group->rank() : 0;
  const std::int64_t saved_size = num_processes(saved);
  if (saved_size != size && !is_between_epochs(saved))
    throw CheckpointError({.place = "the saved training",
                           .found = "it was saved inside an epoch by " + std::to_string(saved_size) +
                                    " processes, and goes on with " + std::to_string(size),
                           .wanted = "as many, or a checkpoint of an epoch's end"});
  StateDict state = saved;
  for (std::int64_t other = 1; other < saved_size; ++other) {
    std::erase_if(state.tensors, [&](const auto& item) { return item.first.starts_with(prefix_of(other)); });
    std::erase_if(state.metadata, [&](const auto& item) { return item.first.starts_with(prefix_of(other)); });
  }
  if (rank > 0 && rank < saved_size) {
    StateDict own = part_of(saved, prefix_of(rank));
    for (const auto& item : saved.tensors)
      if (item.first.starts_with(ShardStreams::kPrefix)) own.tensors.push_back(item);
    replace_own(state, own);
  }
  return state;
}

bool has_own_state(const StateDict& saved, const ProcessGroup* group) {
  return group == nullptr || group->rank() < num_processes(saved);
}

}  // namespace kindling
