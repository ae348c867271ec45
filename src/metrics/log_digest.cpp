#include "metrics/log_digest.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "base/mixed_bits.h"
#include "checkpoint/saved_keys.h"
#include "tensors/saved_number.h"

namespace kindling {
namespace {

constexpr int kBitsBeyondDouble = 64 - 53;

// Adds up a bijection of each number, so that the processor works on several at a time.
class RowDigest {
 public:
  void add(std::uint64_t bits) { sum_ += mixed_bits(bits ^ (kOfPlace * place_++)); }
  void add(double value) { add(std::bit_cast<std::uint64_t>(value)); }
  std::uint64_t after(std::uint64_t earlier_rows) const { return mixed_bits(earlier_rows ^ sum_); }

 private:
  static constexpr std::uint64_t kOfPlace = 0x9e3779b97f4a7c15;
  std::uint64_t sum_ = 0, place_ = 0;
};

}  // namespace

// Custom models may log times and other values that differ from run to run, which is why the loss suffices.
std::vector<std::size_t> LogDigest::counted_places(const EpochLog& log, const EpochLog::Segment& segment) {
  const auto loss = log.find_column("train_loss", EpochLog::Kind::mean);
  std::vector<std::size_t> places;
  for (std::size_t place = 0; place < segment.slots.size(); ++place) {
    const std::size_t column = segment.slots[place].column;
    if (column == loss) return {place};
    if (log.columns_[column].kind != EpochLog::Kind::internal) places.push_back(place);
  }
  return places;
}

inline std::uint64_t LogDigest::after_row(std::uint64_t digest, const EpochLog& log,
                                          const EpochLog::Segment& segment, std::int64_t row,
                                          const std::vector<std::size_t>& places) {
  const auto index = static_cast<std::size_t>(row);
  const std::int64_t offset = row - segment.first_row,
                     first = segment.first_value + offset * std::ssize(segment.slots);
  RowDigest one;
  one.add(static_cast<std::uint64_t>(log.steps_[index]));
  one.add(static_cast<std::uint64_t>(segment.first.batch + offset));
  one.add(log.rates_[index]);
  one.add(segment.first.weight);
  for (const std::size_t place : places) one.add(log.host_value(first + static_cast<std::int64_t>(place)));
  return one.after(digest);
}

void LogDigest::add_rows(const EpochLog& log) {
  if (!digest_) return;
  std::uint64_t digest = *digest_;
  for (const EpochLog::Segment& segment : log.segments_) {
    const std::int64_t end = segment.first_row + segment.num_rows;
    if (end <= num_rows_) continue;
    const std::vector<std::size_t> places = counted_places(log, segment);
    for (std::int64_t row = std::max(segment.first_row, num_rows_); row < end; ++row)
      digest = after_row(digest, log, segment, row, places);
  }
  digest_ = digest;
  num_rows_ = log.num_rows();
}

std::int64_t LogDigest::number() const noexcept {
  return static_cast<std::int64_t>(digest_.value_or(0) >> kBitsBeyondDouble);
}

void LogDigest::save(StateDict& state) const {
  if (digest_) state.metadata[saved_keys::kLogDigest] = std::to_string(std::bit_cast<std::int64_t>(*digest_));
}

void LogDigest::load(const StateDict& state, std::int64_t num_rows) {
  const auto saved = find_number<std::int64_t>(state.metadata, saved_keys::kLogDigest);
  digest_.reset();
  if (saved) digest_ = std::bit_cast<std::uint64_t>(*saved);
  num_rows_ = num_rows;
}

}  // namespace kindling
