#pragma once

#include <cstdint>
#include <vector>

// Loops over plain memory whose results are bit-identical to those of LibTorch's operators. They are in a
// separate source file, without LibTorch's headers, because it is compiled with other flags: vectorised, and
// without fused multiply-add.
namespace kindling::loops {

// out = max(x, 0); NaN stays NaN.
void relu(const float* x, float* out, std::int64_t count);
// out = gradient where x > 0 or x is NaN, else 0.
void relu_backward(const float* gradient, const float* x, float* out, std::int64_t count);
struct Images {
  std::int64_t batch, channels, num_places;  // height times width
};
// Computes relu_backward for x and out in channels-last order and a contiguous gradient (NCHW). T: float, or
// std::uint16_t for the bits of a bfloat16.
template <class T>
void relu_backward_of_planes(const Images& images, const T* gradient, const T* x, T* out);
// Sums each column of a [rows, columns] matrix in the order of LibTorch's cascade summation. LibTorch sums
// columns that fill a whole group in another order than the remaining ones. The size of a group is a multiple
// of 4 that depends on the processor and on the number of columns.
void sum_rows(const float* x, float* out, std::int64_t rows, std::int64_t columns, std::int64_t group);
// Copies `row` to every row of [rows, columns].
void fill_rows(const float* row, float* out, std::int64_t rows, std::int64_t columns);
// out = (x - y)².
void squared_difference(const float* x, const float* y, float* out, std::int64_t count);
// out = scale · (x - y) · gradient; the gradient is a single number.
void squared_difference_backward(float scale, float gradient, const float* x, const float* y, float* out,
                                 std::int64_t count);
// The position of the largest number of each row of [rows, columns], the first of equal ones and of NaNs.
void largest_of_rows(const float* x, std::int64_t* out, std::int64_t rows, std::int64_t columns);
// out = whether x and y are equal, or x and a number differ.
void equal(const std::int64_t* x, const std::int64_t* y, bool* out, std::int64_t count);
void not_equal(const std::int64_t* x, std::int64_t y, bool* out, std::int64_t count);
std::int64_t count_true(const bool* x, std::int64_t count);

// Height or width of the images and of the pooling windows.
struct PoolingAxis {
  std::int64_t size, out_size, kernel, stride, padding, dilation;
};

// The elements of an image that each pooling window covers. A place is row · width + column.
struct PoolingWindows {
  PoolingWindows(const PoolingAxis& rows, const PoolingAxis& columns);

  struct Window {
    std::int32_t first;  // place
    std::int32_t shape;  // index into `shapes`
  };
  std::vector<Window> windows;                    // row by row
  std::vector<std::vector<std::int32_t>> shapes;  // places relative to the first one, which is 0
  bool has_empty = false;                         // a window outside of the image
};

struct PoolingImages {
  std::int64_t batch, channels, num_places, num_windows;
  bool is_channels_last;  // else plane by plane
};
constexpr std::int64_t kFewestPoolingLanes = 4;  // channels, or else planes

// Max pooling. LibTorch computes contiguous images, and channels that do not fill a register, one number at a
// time; this computes at least four at once: neighbouring channels, or several planes. T: float, or
// std::uint16_t for the bits of a bfloat16. `indices`: the places of the largest numbers. Returns false if a
// bfloat16 is NaN: which NaN LibTorch returns depends on the processor.
template <class T>
bool max_pool(const PoolingWindows& windows, const PoolingImages& images, const T* x, T* out,
              std::int64_t* indices);

// The backward of max_pool for bfloat16, where LibTorch spends most of the time adding up. Returns false if a
// gradient is NaN or subnormal, or if several gradients belong to the same element: the results are then not
// LibTorch's.
bool max_pool_backward(const PoolingImages& images, const std::uint16_t* gradient,
                       const std::int64_t* indices, std::uint16_t* x_gradient);

}  // namespace kindling::loops
