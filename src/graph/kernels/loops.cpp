#include "graph/kernels/loops.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <type_traits>
#include <utility>
#include <vector>

namespace kindling::loops {
namespace {

// The value of a float32 or of the bits of a bfloat16.
float number(float x) { return x; }
float number(std::uint16_t x) { return std::bit_cast<float>(std::uint32_t{x} << 16); }

}  // namespace

void relu(const float* x, float* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = x[i] < 0 ? 0 : x[i];
}

void relu_backward(const float* gradient, const float* x, float* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = gradient[i];  // read unconditionally, which avoids a branch
    out[i] = x[i] <= 0 ? 0 : value;
  }
}

void largest_of_rows(const float* x, std::int64_t* out, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t row = 0; row < rows; ++row, x += columns) {
    std::int64_t largest = 0;
    // A NaN is not less than or equal to anything, and nothing is to it.
    for (std::int64_t i = 1; i < columns && x[largest] == x[largest]; ++i)
      if (!(x[i] <= x[largest])) largest = i;
    out[row] = largest;
  }
}

void equal(const std::int64_t* x, const std::int64_t* y, bool* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = x[i] == y[i];
}

void not_equal(const std::int64_t* x, std::int64_t y, bool* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = x[i] != y;
}

std::int64_t count_true(const bool* x, std::int64_t count) {
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += x[i] ? 1 : 0;
  return sum;
}

template <class T>
void relu_backward_of_planes(const Images& images, const T* gradient, const T* x, T* out) {
  for (std::int64_t image = 0; image < images.batch; ++image, gradient += images.channels * images.num_places)
    for (std::int64_t place = 0; place < images.num_places;
         ++place, x += images.channels, out += images.channels)
      for (std::int64_t channel = 0; channel < images.channels; ++channel) {
        const T value = gradient[channel * images.num_places + place];
        out[channel] = number(x[channel]) <= 0 ? T{0} : value;
      }
}
template void relu_backward_of_planes(const Images&, const float*, const float*, float*);
template void relu_backward_of_planes(const Images&, const std::uint16_t*, const std::uint16_t*,
                                      std::uint16_t*);

namespace {

constexpr int kLevels = 4;

// Sums blocks of rows and then the sums of blocks, so that rounding errors grow with the logarithm of the
// number of rows. Each row has `lanes` neighbouring numbers.
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

// Sums one column in four interleaved sums.
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

// The elements of an axis that a window covers.
struct Part {
  std::int64_t first, count;
};

Part part_of(const PoolingAxis& axis, std::int64_t window) {
  std::int64_t first = window * axis.stride - axis.padding;
  const std::int64_t end = std::min(first + (axis.kernel - 1) * axis.dilation + 1, axis.size);
  while (first < 0) first += axis.dilation;
  return {first, end <= first ? 0 : (end - first - 1) / axis.dilation + 1};
}

std::vector<std::int32_t> places_of(std::int64_t rows, std::int64_t columns, std::int64_t row_step,
                                    std::int64_t column_step) {
  std::vector<std::int32_t> places;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < columns; ++column)
      places.push_back(static_cast<std::int32_t>(row * row_step + column * column_step));
  return places;
}

}  // namespace

PoolingWindows::PoolingWindows(const PoolingAxis& rows, const PoolingAxis& columns) {
  std::map<std::pair<std::int64_t, std::int64_t>, std::int32_t> known;
  for (std::int64_t i = 0; i < rows.out_size; ++i)
    for (std::int64_t j = 0; j < columns.out_size; ++j) {
      const Part row = part_of(rows, i), column = part_of(columns, j);
      const auto [shape, is_new] =
          known.try_emplace({row.count, column.count}, static_cast<std::int32_t>(shapes.size()));
      if (is_new)
        shapes.push_back(places_of(row.count, column.count, rows.dilation * columns.size, columns.dilation));
      windows.push_back({static_cast<std::int32_t>(row.first * columns.size + column.first), shape->second});
      has_empty = has_empty || row.count * column.count == 0;
    }
}

namespace {

// Vector types, because compilers do not vectorise these loops by themselves.
constexpr std::int64_t kRegister = 4;
using Floats = float __attribute__((vector_size(16)));
using Ints = std::int32_t __attribute__((vector_size(16)));
using Shorts = std::uint16_t __attribute__((vector_size(8)));

template <class T, class Register>
Register bits_of(const T* x) {
  Register value;
  std::memcpy(&value, x, sizeof value);
  return value;
}

Floats side_by_side(const float* x) { return bits_of<float, Floats>(x); }
Floats side_by_side(const std::uint16_t* x) {
  return std::bit_cast<Floats>(__builtin_convertvector((bits_of<std::uint16_t, Shorts>(x)), Ints) << 16);
}

// Loads four lanes, `step` apart if they are spread.
template <bool is_spread, class T>
Floats load(const T* x, std::int64_t step) {
  if constexpr (is_spread)
    return Floats{number(x[0]), number(x[step]), number(x[2 * step]), number(x[3 * step])};
  else
    return side_by_side(x);
}

template <bool is_spread>
void store(Floats value, float* to, std::int64_t step) {
  if constexpr (is_spread)
    for (int k = 0; k < kRegister; ++k) to[k * step] = value[k];
  else
    std::memcpy(to, &value, sizeof value);
}
template <bool is_spread>
void store(Floats value, std::uint16_t* to, std::int64_t step) {
  const Shorts high = __builtin_convertvector(std::bit_cast<Ints>(value) >> 16, Shorts);
  if constexpr (is_spread)
    for (int k = 0; k < kRegister; ++k) to[k * step] = high[k];
  else
    std::memcpy(to, &high, sizeof high);
}

bool has_any(Ints mask) { return (mask[0] | mask[1] | mask[2] | mask[3]) != 0; }

// The distances between two places and between two lanes.
struct Steps {
  std::int64_t place, lane, out_lane;
};

// Pools one window for n registers of lanes. Returns where a bfloat16 is NaN.
template <std::size_t n, bool is_spread, class T>
Ints pool(const T* x, Steps steps, const std::vector<std::int32_t>& places, std::int32_t first, T* out,
          std::int64_t* indices) {
  struct Largest {
    Floats value;
    Ints place;  // relative to the first
  };
  std::array<Largest, n> largest;
  const auto numbers = [&](std::int64_t place, std::size_t i) {
    const std::int64_t lane = static_cast<std::int64_t>(i) * kRegister;
    return load<is_spread>(x + place * steps.place + lane * steps.lane, steps.lane);
  };
  for (std::size_t i = 0; i < n; ++i) largest[i] = {numbers(0, i), Ints{}};
  for (std::size_t k = 1; k < places.size(); ++k)
    for (std::size_t i = 0; i < n; ++i) {
      auto& [most, at] = largest[i];
      const Floats value = numbers(places[k], i);
      const Ints takes = (value > most) | (value != value);
      most =
          std::bit_cast<Floats>((std::bit_cast<Ints>(value) & takes) | (std::bit_cast<Ints>(most) & ~takes));
      at = ((Ints{} + places[k]) & takes) | (at & ~takes);
    }
  Ints has_nan{};
  for (std::size_t i = 0; i < n; ++i) {
    const std::int64_t lane = static_cast<std::int64_t>(i) * kRegister * steps.out_lane;
    const auto [value, place] = largest[i];
    store<is_spread>(value, out + lane, steps.out_lane);
    for (int k = 0; k < kRegister; ++k) indices[lane + k * steps.out_lane] = place[k] + first;
    if constexpr (!std::is_same_v<T, float>) has_nan |= value != value;
  }
  return has_nan;
}

template <std::size_t n>
using Registers = std::integral_constant<std::size_t, n>;

// Calls visit(registers, first lane) until all lanes have been visited, some of the last ones twice.
template <class Visit>
void visit_lanes(std::int64_t count, const Visit& visit) {
  std::int64_t lane = 0;
  for (; lane + 4 * kRegister <= count; lane += 4 * kRegister) visit(Registers<4>(), lane);
  for (; lane + 2 * kRegister <= count; lane += 2 * kRegister) visit(Registers<2>(), lane);
  for (; lane + kRegister <= count; lane += kRegister) visit(Registers<1>(), lane);
  if (lane < count) visit(Registers<1>(), count - kRegister);
}

// Lanes are planes: a few of them at a time, from the first window to the last.
template <class T>
Ints pool_planes(const PoolingWindows& all, const PoolingImages& images, const T* x, T* out,
                 std::int64_t* indices) {
  Ints has_nan{};
  visit_lanes(images.batch * images.channels, [&]<std::size_t n>(Registers<n>, std::int64_t plane) {
    std::int64_t to = plane * images.num_windows;
    for (const PoolingWindows::Window window : all.windows) {
      has_nan |= pool<n, true>(x + plane * images.num_places + window.first,
                               {.place = 1, .lane = images.num_places, .out_lane = images.num_windows},
                               all.shapes[static_cast<std::size_t>(window.shape)], window.first, out + to,
                               indices + to);
      ++to;
    }
  });
  return has_nan;
}

// Lanes are neighbouring channels.
template <class T>
Ints pool_channels(const PoolingWindows& all, const PoolingImages& images, const T* x, T* out,
                   std::int64_t* indices) {
  Ints has_nan{};
  for (std::int64_t image = 0; image < images.batch; ++image, x += images.num_places * images.channels)
    for (const PoolingWindows::Window window : all.windows) {
      const std::vector<std::int32_t>& places = all.shapes[static_cast<std::size_t>(window.shape)];
      visit_lanes(images.channels, [&]<std::size_t n>(Registers<n>, std::int64_t channel) {
        has_nan |= pool<n, false>(x + window.first * images.channels + channel,
                                  {.place = images.channels, .lane = 1, .out_lane = 1}, places, window.first,
                                  out + channel, indices + channel);
      });
      out += images.channels;
      indices += images.channels;
    }
  return has_nan;
}

}  // namespace

template <class T>
bool max_pool(const PoolingWindows& windows, const PoolingImages& images, const T* x, T* out,
              std::int64_t* indices) {
  const Ints has_nan = images.is_channels_last ? pool_channels(windows, images, x, out, indices)
                                               : pool_planes(windows, images, x, out, indices);
  return !has_any(has_nan);
}

template bool max_pool(const PoolingWindows&, const PoolingImages&, const float*, float*, std::int64_t*);
template bool max_pool(const PoolingWindows&, const PoolingImages&, const std::uint16_t*, std::uint16_t*,
                       std::int64_t*);

bool max_pool_backward(const PoolingImages& images, const std::uint16_t* gradient,
                       const std::int64_t* indices, std::uint16_t* x_gradient) {
  constexpr std::uint16_t kNegativeZero = 0x8000, kInfinity = 0x7f80, kLeastNormal = 0x80;
  const std::int64_t lanes = images.is_channels_last ? images.channels : 1;
  const std::int64_t num_groups = images.batch * images.channels / lanes;
  std::fill_n(x_gradient, num_groups * lanes * images.num_places, std::uint16_t{0});
  int is_other = 0;
  for (std::int64_t group = 0; group < num_groups; ++group, x_gradient += lanes * images.num_places)
    for (std::int64_t i = 0; i < images.num_windows; ++i, gradient += lanes, indices += lanes)
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        const std::int64_t place = indices[lane];
        const std::uint16_t value = gradient[lane];
        if (place < 0) continue;
        std::uint16_t& to = x_gradient[place * lanes + lane];
        const int size = value & ~kNegativeZero;
        is_other |= to | static_cast<int>(size > kInfinity || (size > 0 && size < kLeastNormal));
        to = value == kNegativeZero ? 0 : value;  // as a sum with zero is
      }
  return is_other == 0;
}

}  // namespace kindling::loops
