#include "training/state/passed_batches.h"

#include <charconv>
#include <string>

#include "checkpoint/saved_keys.h"
#include "kindling/base/error.h"

namespace kindling {

std::int64_t PassedBatches::count_at(std::int64_t epoch, std::int64_t batch) const {
  for (const BatchRange& range : ranges_)
    if (range.epoch == epoch && range.batch == batch) return range.count;
  return 0;
}

std::int64_t PassedBatches::count_in(std::int64_t epoch) const {
  std::int64_t count = 0;
  for (const BatchRange& range : ranges_)
    if (range.epoch == epoch) count += range.count;
  return count;
}

// "3:17:1 5:0:4": epoch, first batch and number of each.
void PassedBatches::save(StateDict& state) const {
  if (ranges_.empty()) return;
  std::string text;
  for (const BatchRange& range : ranges_)
    text += (text.empty() ? "" : " ") + std::to_string(range.epoch) + ":" + std::to_string(range.batch) +
            ":" + std::to_string(range.count);
  state.metadata[saved_keys::kPassedBatches] = text;
}

PassedBatches PassedBatches::load(const StateDict& state) {
  PassedBatches passed;
  const auto found = state.metadata.find(saved_keys::kPassedBatches);
  if (found == state.metadata.end()) return passed;
  const std::string& text = found->second;
  const char *at = text.data(), *const end = at + text.size();
  const auto read = [&](std::int64_t& number, char after) {
    const auto [rest, error] = std::from_chars(at, end, number);
    const bool is_end = rest == end;
    if (error != std::errc() || number < 0 || (is_end ? after != ' ' : *rest != after))
      throw CheckpointError({.place = std::string("'") + saved_keys::kPassedBatches + "'",
                             .found = "'" + text + "'",
                             .wanted = "epoch:batch:count of each step that the run passes over"});
    at = is_end ? rest : rest + 1;
  };
  while (at != end) {
    BatchRange range;
    read(range.epoch, ':');
    read(range.batch, ':');
    read(range.count, ' ');
    passed.add(range);
  }
  return passed;
}

}  // namespace kindling
