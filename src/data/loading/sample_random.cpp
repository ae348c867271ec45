#include "kindling/data/sample_random.h"

#include <ATen/ops/empty.h>

#include <cmath>
#include <numbers>

#include "kindling/base/error.h"

namespace kindling {
namespace {

constexpr int kPhiloxRounds = 10;

// One block of Philox4x32-10: Salmon et al. 2011, figure 1 and table 2.
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// Set apart from what a data set draws for the same sample.
constexpr std::uint64_t kNumbersOfBatches = 0xB5297A4D3F84D5B5;

thread_local const SampleStreams::Scope* current_scope = nullptr;

}  // namespace

SampleRandom::SampleRandom(std::uint64_t seed, std::int64_t epoch, std::int64_t sample) noexcept
    : key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
      counter_{0, static_cast<std::uint32_t>(epoch), static_cast<std::uint32_t>(sample),
               static_cast<std::uint32_t>(static_cast<std::uint64_t>(sample) >> 32)} {}

void SampleRandom::fill() noexcept {
  const auto words = philox(counter_, key_);
  ++counter_[0];
  for (std::size_t i = 0; i < bits_.size(); ++i)
    bits_[i] = words[2 * i] | std::uint64_t{words[2 * i + 1]} << 32;
  num_used_ = 0;
}

SampleRandom::result_type SampleRandom::operator()() noexcept {
  if (num_used_ == bits_.size()) fill();
  return bits_[num_used_++];
}

double SampleRandom::uniform() noexcept { return static_cast<double>((*this)() >> 11) * 0x1p-53; }

// Rejects the bits of the last, incomplete interval.
std::int64_t SampleRandom::below(std::int64_t n) noexcept {
  const auto size = static_cast<std::uint64_t>(n);
  const std::uint64_t remainder = (max() % size + 1) % size;
  for (;;) {
    const std::uint64_t bits = (*this)();
    if (bits <= max() - remainder) return static_cast<std::int64_t>(bits % size);
  }
}

double SampleRandom::normal() noexcept {
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

at::Tensor SampleStreams::numbers(const at::Tensor& samples, std::int64_t count, bool is_pinned) const {
  at::Tensor numbers = at::empty({samples.numel(), count}, at::dtype(at::kFloat).pinned_memory(is_pinned));
  auto* number = numbers.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < samples.numel(); ++i) {
    SampleRandom random(seed_ ^ kNumbersOfBatches, epoch_, samples.const_data_ptr<std::int64_t>()[i]);
    for (std::int64_t j = 0; j < count; ++j) *number++ = random.uniform_float();
  }
  return numbers;
}

SampleStreams SampleStreams::current() {
  if (current_scope == nullptr)
    throw DataError({.place = "SampleStreams::current",
                     .found = "no loader is gathering a batch on this thread",
                     .wanted = "a call inside of Dataset::gather",
                     .remedy = "call it before you start threads, and give them the result; around your own "
                               "call of gather, create a SampleStreams::Scope"});
  SampleStreams streams;
  streams.seed_ = current_scope->seed_;
  streams.epoch_ = current_scope->epoch_;
  return streams;
}

SampleStreams::Scope::Scope(const SampleStreams& streams) noexcept
    : before_(current_scope), seed_(streams.seed_), epoch_(streams.epoch_) {
  current_scope = this;
}

SampleStreams::Scope::~Scope() { current_scope = before_; }

SampleRandom sample_random(std::int64_t sample) { return SampleStreams::current().of(sample); }

}  // namespace kindling
