#include "data/transforms/sample_noise.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_xor.h>

#include <algorithm>
#include <numbers>

namespace kindling {
namespace {

constexpr std::int64_t kLow32 = 0xffffffff;
constexpr double kBits24 = 1 << 24;  // of the random numbers of samples, which are float32 in [0, 1)

// lowbias32 of Chris Wellons' hash-prospector, for 32 bits in int64 numbers. The multiplications overflow;
// their low bits are those of unsigned numbers.
at::Tensor hashed(at::Tensor bits) {
  bits = at::bitwise_xor(bits, bits.bitwise_right_shift(16)).mul_(0x7feb352d).bitwise_and_(kLow32);
  bits = at::bitwise_xor(bits, bits.bitwise_right_shift(15)).mul_(0x846ca68b).bitwise_and_(kLow32);
  return at::bitwise_xor(bits, bits.bitwise_right_shift(16));
}

// Numbers in (0, 1) of 24 bits.
at::Tensor uniform_of(const at::Tensor& bits) {
  return bits.bitwise_right_shift(8).to(at::kFloat).add_(0.5).mul_(1 / kBits24);
}

}  // namespace

at::Tensor sample_noise(const at::Tensor& values, const at::Tensor& numbers) {
  const at::Tensor keys = numbers.to(at::kDouble).mul_(kBits24).to(at::kLong),
                   first = hashed(keys.narrow(1, 0, 1)),
                   second = hashed(at::bitwise_xor(keys.narrow(1, 1, 1), first));
  const std::int64_t count = values.numel() / std::max<std::int64_t>(values.size(0), 1);
  const at::Tensor places = at::arange(count, keys.options()),
                   bits = hashed(at::bitwise_xor(hashed(places), first).add_(second).bitwise_and_(kLow32)),
                   more = hashed(at::bitwise_xor(bits, second).add_(places).bitwise_and_(kLow32));
  const at::Tensor radius = uniform_of(bits).log_().mul_(-2).sqrt_(),
                   angle = uniform_of(more).mul_(2 * std::numbers::pi);
  return angle.cos_().mul_(radius).view(values.sizes());
}

}  // namespace kindling
