#include "training/parallel/rank_states.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "checkpoint/saved_keys.h"
#include "kindling/base/error.h"
#include "tensors/saved_number.h"
#include "tensors/state_tensors.h"

namespace kindling {
namespace {

bool is_own(const std::string& name) {
  return std::ranges::any_of(saved_keys::kPerRank,
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

// Returns the rank that an entry belongs to: 3 for "rank3.random.0", and 0 for what all ranks share.
std::int64_t rank_of(const std::string& name) {
  if (!name.starts_with("rank")) return 0;
  std::int64_t rank = 0;
  std::from_chars(name.data() + 4, name.data() + name.size(), rank);
  return rank > 0 && name.starts_with(saved_keys::of_rank(rank)) ? rank : 0;
}

std::int64_t highest_rank(const StateDict& saved) {
  std::int64_t highest = 0;
  for (const auto& item : saved.tensors) highest = std::max(highest, rank_of(item.first));
  for (const auto& item : saved.metadata) highest = std::max(highest, rank_of(item.first));
  return highest;
}

// Throws CheckpointError for a number that is larger than what the file has states for.
std::int64_t num_processes(const StateDict& saved) {
  const auto number = find_number<std::int64_t>(saved.metadata, saved_keys::kProcesses, {.min = 1});
  if (!number || *number == 1) return 1;
  return number_of<std::int64_t>(saved.metadata, saved_keys::kProcesses,
                                 {.min = 1, .max = highest_rank(saved) + 1});
}

void replace_own(StateDict& state, const StateDict& part) {
  std::erase_if(state.tensors, [](const auto& item) { return is_own(item.first); });
  std::erase_if(state.metadata, [](const auto& item) { return is_own(item.first); });
  put(state, {}, part);
}

bool is_between_epochs(const StateDict& saved) {
  const auto batch = saved.metadata.find(saved_keys::kBatch), phase = saved.metadata.find(saved_keys::kPhase);
  return batch != saved.metadata.end() && batch->second == "0" && phase != saved.metadata.end() &&
         phase->second == "training";
}

// The random states of gradient shards do not belong to a rank.
void add(StateDict& all, const std::string& prefix, const StateDict& part) {
  for (const auto& [name, tensor] : part.tensors)
    all.tensors.emplace_back(name.starts_with(saved_keys::kGradientShards) ? name : prefix + name, tensor);
  for (const auto& [name, value] : part.metadata) all.metadata[prefix + name] = value;
}

}  // namespace

StateDict gather_state(const StateDict& own, ProcessGroup& group) {
  const auto parts = group.all_gather(state_bytes(own_part(own)));
  StateDict all = own;
  const auto part = [&](std::int64_t rank) {
    return state_of_bytes(parts[static_cast<std::size_t>(rank)], "the state of rank " + std::to_string(rank));
  };
  if (group.rank() != 0) replace_own(all, part(0));
  for (std::int64_t rank = 1; rank < group.size(); ++rank) add(all, saved_keys::of_rank(rank), part(rank));
  all.metadata[saved_keys::kProcesses] = std::to_string(group.size());
  return all;
}

StateDict own_state(const StateDict& saved, const ProcessGroup* group) {
  const std::int64_t size = group != nullptr ? group->size() : 1, rank = group != nullptr ? group->rank() : 0;
  const std::int64_t saved_size = num_processes(saved);
  if (saved_size != size && !is_between_epochs(saved))
    throw CheckpointError({.place = "the saved run",
                           .found = "it was saved mid-epoch by " + std::to_string(saved_size) +
                                    " ranks and is resumed with " + std::to_string(size),
                           .wanted = "the same number of ranks, or a checkpoint from the end of an epoch"});
  StateDict state = saved;
  const auto is_of_another = [&](const auto& item) {
    const std::int64_t owner = rank_of(item.first);
    return owner > 0 && owner < saved_size;
  };
  std::erase_if(state.tensors, is_of_another);
  std::erase_if(state.metadata, is_of_another);
  if (rank > 0 && rank < saved_size) {
    StateDict own = part_of(saved, saved_keys::of_rank(rank));
    for (const auto& item : saved.tensors)
      if (item.first.starts_with(saved_keys::kGradientShards)) own.tensors.push_back(item);
    replace_own(state, own);
  }
  return state;
}

bool has_own_state(const StateDict& saved, const ProcessGroup* group) {
  return group == nullptr || group->rank() < num_processes(saved);
}

}  // namespace kindling
