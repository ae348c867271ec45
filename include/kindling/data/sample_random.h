#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <limits>

#include "kindling/base/export.h"

namespace kindling {

// Random numbers of one sample: the same for every run, number of workers and number of ranks. They come from
// Philox4x32-10 (Salmon et al., Parallel random numbers: as easy as 1, 2, 3, 2011), whose key is the seed and
// whose counter contains sample, epoch and number of the block. Meets the requirements of a
// UniformRandomBitGenerator; the distributions of <random> differ between standard libraries, those below do
// not (normal() in its last bits).
class KINDLING_API SampleRandom {
 public:
  using result_type = std::uint64_t;

  SampleRandom(std::uint64_t seed, std::int64_t epoch, std::int64_t sample) noexcept;

  static constexpr result_type min() noexcept { return 0; }
  static constexpr result_type max() noexcept { return std::numeric_limits<result_type>::max(); }
  // Returns the next 64 random bits.
  result_type operator()() noexcept;

  // Returns a number in [0, 1) with 53 random bits.
  double uniform() noexcept;
  // The same with 24 bits.
  float uniform_float() noexcept { return static_cast<float>((*this)() >> 40) * 0x1p-24F; }
  // Returns a number in [low, high).
  double uniform(double low, double high) noexcept { return low + (high - low) * uniform(); }
  // Returns an integer in [0, n), each equally likely; n >= 1.
  std::int64_t below(std::int64_t n) noexcept;
  // Returns true with the given probability.
  bool chance(double probability) noexcept { return uniform() < probability; }
  // Returns a number of the standard normal distribution (Box and Muller, 1958).
  double normal() noexcept;

 private:
  void fill() noexcept;

  std::array<std::uint32_t, 2> key_;
  std::array<std::uint32_t, 4> counter_;  // block, epoch, sample (two words)
  std::array<std::uint64_t, 2> bits_{};
  std::size_t num_used_ = 2;
};

// The random numbers of all samples in one epoch. A value: copy it into threads of your own.
class KINDLING_API SampleStreams {
 public:
  SampleStreams() = default;
  SampleStreams(std::int64_t seed, std::int64_t epoch) noexcept
      : seed_(static_cast<std::uint64_t>(seed)), epoch_(epoch) {}

  std::int64_t epoch() const noexcept { return epoch_; }
  // Starts the stream of the sample with this index in the data set.
  SampleRandom of(std::int64_t sample) const noexcept { return {seed_, epoch_, sample}; }

  // Returns random numbers for batches of samples: float32 [samples, count] in [0, 1), in (pinned) host
  // memory, from streams other than those of of().
  // `samples`: int64 [samples], on the CPU.
  at::Tensor numbers(const at::Tensor& samples, std::int64_t count, bool is_pinned = false) const;

  // Returns the streams of the batch that a loader requests from a data set on this thread: its seed, and the
  // epoch of its cursor. Throws DataError outside of Dataset::gather, and on other threads than the one that
  // called it.
  static SampleStreams current();

  // While it lives, current() returns the given streams on this thread. Loaders do this around gather; it is
  // also for calls of gather in tests.
  class KINDLING_API Scope {
   public:
    explicit Scope(const SampleStreams& streams) noexcept;
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const Scope* before_;
    std::uint64_t seed_;
    std::int64_t epoch_;
    friend class SampleStreams;
  };

 private:
  std::uint64_t seed_ = 0;
  std::int64_t epoch_ = 0;
};

// Starts the stream of a sample, for use in Dataset::gather and in the functions of a CollatedDataset:
// SampleStreams::current().of(sample).
KINDLING_API SampleRandom sample_random(std::int64_t sample);

}  // namespace kindling
