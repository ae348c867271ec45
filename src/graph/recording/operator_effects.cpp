#include "graph/recording/operator_effects.h"

#include <algorithm>

#include "graph/recording/operator_kinds.h"

namespace kindling {
namespace {

void add_storages(const Recording& recording, const OperatorValue& value, std::vector<std::size_t>& to) {
  for (const std::int64_t place : value.places)
    if (place >= 0) to.push_back(recording.places[static_cast<std::size_t>(place)].storage);
}

}  // namespace

OperatorEffects effects_of(const Recording& recording, const OperatorCall& call) {
  OperatorEffects effects{.is_random = call.op.hasTag(at::Tag::nondeterministic_seeded)};
  for (std::size_t i = 0; i < call.arguments.size(); ++i) {
    add_storages(recording, call.arguments[i], effects.reads);
    if (writes_to(call.op, i)) add_storages(recording, call.arguments[i], effects.writes);
  }
  std::vector<std::size_t> results;
  for (const OperatorValue& result : call.results) add_storages(recording, result, results);
  const auto is_argument = [&](std::size_t storage) {
    return std::ranges::count(effects.reads, storage) > 0;
  };
  std::ranges::copy_if(results, std::back_inserter(effects.makes),
                       [&](std::size_t storage) { return !is_argument(storage); });
  effects.is_view = effects.writes.empty() && effects.makes.empty() && !results.empty();
  effects.is_check = call.results.empty() && effects.writes.empty();
  return effects;
}

std::vector<bool> written_storages(const Recording& recording) {
  std::vector<bool> is_written(recording.storages.size());
  for (const OperatorCall& call : recording.calls)
    for (const std::size_t storage : effects_of(recording, call).writes) is_written[storage] = true;
  return is_written;
}

std::vector<bool> needed_calls(const Recording& recording, std::span<const OperatorEffects> effects,
                               std::span<const std::size_t> outputs) {
  std::vector<bool> is_needed(recording.storages.size()), calls(effects.size());
  for (std::size_t i = 0; i < is_needed.size(); ++i) is_needed[i] = recording.storages[i].is_external;
  for (const std::size_t output : outputs) is_needed[output] = true;
  for (std::size_t i = effects.size(); i-- > 0;) {
    const OperatorEffects& call = effects[i];
    const auto changes = [&](std::size_t storage) { return is_needed[storage]; };
    calls[i] =
        !call.is_view && (call.is_random || call.is_check || std::ranges::any_of(call.writes, changes) ||
                          std::ranges::any_of(call.makes, changes));
    if (calls[i])
      for (const std::size_t storage : call.reads) is_needed[storage] = true;
  }
  return calls;
}

}  // namespace kindling
