#include "graph/fast_kernels.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>
#include <vector>

#include "graph/number_of_bits.h"

namespace kindling::fast {

void relu(const float* x, float* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = x[i] < 0 ? 0 : x[i];
}

void relu_backward(const float* gradient, const float* x, float* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float there = gradient[i];  // read in any case, so that there is no branch
    out[i] = x[i] <= 0 ? 0 : there;
  }
}

template <class T>
void relu_backward_of_planes(const Images& images, const T* gradient, const T* x, T* out) {
  for (std::int64_t image = 0; image < images.batch; ++image, gradient += images.channels * images.num_places)
    for (std::int64_t place = 0; place < images.num_places;
         ++place, x += images.channels, out += images.channels)
      for (std::int64_t channel = 0; channel < images.channels; ++channel) {
        const T there = gradient[channel * images.num_places + place];
        out[channel] = number(x[channel]) <= 0 ? T{0} : there;
      }
}
template void relu_backward_of_planes(const Images&, const float*, const float*, float*);
template void relu_backward_of_planes(const Images&, const std::uint16_t*, const std::uint16_t*,
                                      std::uint16_t*);

namespace {

constexpr int kLevels = 4;

// Sums so many rows at a time and sums of sums, so that rounding errors grow with the logarithm of the rows.
// `lanes` numbers side by side in each row.
template <std::size_t lanes>
std::array<float, lanes> cascade_sum(const float* x, std::int64_t rows, std::int64_t stride) {
  const int bits = rows > 1 ? static_cast<int>(std::bit_width(static_cast<std::uint64_t>(rows) - 1)) : 0;
  const int power = std::max(4, bits / kLevels);
  const std::int64_t step = std::int64_t{1} << power, mask = step - 1;
  std::array<std::array<float, lanes>, kLevels> sums{};
  const auto add_row = [&](std::int64_t row) {
    for (std::size_t j = 0; j < lanes; ++j) sums[0][j] += x[row * stride + static_cast<std::int64_t>(j)];
  };
  std::int64_t row = 0;
  while (row + step <= rows) {
    for (std::int64_t i = 0; i < step; ++i) add_row(row++);
    for (std::size_t level = 1; level < kLevels; ++level) {
      for (std::size_t j = 0; j < lanes; ++j) sums[level][j] += sums[level - 1][j];
      sums[level - 1] = {};
      if ((row & (mask << (level * static_cast<std::size_t>(power)))) != 0) break;
    }
  }
  while (row < rows) add_row(row++);
  for (std::size_t level = 1; level < kLevels; ++level)
    for (std::size_t j = 0; j < lanes; ++j) sums[0][j] += sums[level][j];
  return sums[0];
}

// One column in four interleaved sums.
float interleaved_sum(const float* x, std::int64_t rows, std::int64_t stride) {
  constexpr std::int64_t kSums = 4;
  std::array<float, kSums> sums{};
  for (std::size_t k = 0; k < kSums; ++k)
    sums[k] = cascade_sum<1>(x + static_cast<std::int64_t>(k) * stride, rows / kSums, stride * kSums)[0];
  for (std::int64_t row = rows / kSums * kSums; row < rows; ++row) sums[0] += x[row * stride];
  return sums[0] + sums[1] + sums[2] + sums[3];
}

}  // namespace

void sum_rows(const float* x, float* out, std::int64_t rows, std::int64_t columns, std::int64_t group) {
  const std::int64_t grouped = columns / group * group;
  std::int64_t first = 0;
  const auto sum_some = [&]<std::size_t lanes>(std::integral_constant<std::size_t, lanes>) {
    for (; first + static_cast<std::int64_t>(lanes) <= grouped; first += lanes) {
      const auto sums = cascade_sum<lanes>(x + first, rows, columns);
      std::copy(sums.begin(), sums.end(), out + first);
    }
  };
  sum_some(std::integral_constant<std::size_t, 16>());  // in registers
  sum_some(std::integral_constant<std::size_t, 4>());
  for (; first < columns; ++first) out[first] = interleaved_sum(x + first, rows, columns);
}

void fill_rows(const float* row, float* out, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t i = 0; i < rows; ++i)
    std::memcpy(out + i * columns, row, static_cast<std::size_t>(columns) * sizeof(float));
}

void squared_difference(const float* x, const float* y, float* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float difference = x[i] - y[i];
    out[i] = difference * difference;
  }
}

void squared_difference_backward(float scale, float gradient, const float* x, const float* y, float* out,
                                 std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = scale * (x[i] - y[i]) * gradient;
}

namespace {

using Sgemm = void (*)(const char*, const char*, const int*, const int*, const int*, const float*,
                       const float*, const int*, const float*, const int*, const float*, float*, const int*);

Sgemm find_gemm() { return reinterpret_cast<Sgemm>(dlsym(RTLD_DEFAULT, "sgemm_")); }

const Sgemm sgemm = find_gemm();

}  // namespace

bool has_gemm() { return sgemm != nullptr; }

void gemm(const Gemm& shape, const float* a, const float* b, float* c) {
  const char transpose_a = shape.transpose_a ? 't' : 'n', transpose_b = shape.transpose_b ? 't' : 'n';
  const float alpha = 1;
  sgemm(&transpose_a, &transpose_b, &shape.m, &shape.n, &shape.k, &alpha, a, &shape.lda, b, &shape.ldb,
        &shape.beta, c, &shape.ldc);
}

}  // namespace kindling::fast
