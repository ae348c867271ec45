#pragma once

#include <cstdint>

// Loops over float32 in plain memory that give the bits of LibTorch's operators, without their preparations.
namespace kindling::fast {

// max(x, 0); NaN stays.
void relu(const float* x, float* out, std::int64_t count);
// gradient where x > 0 (or is NaN), else 0.
void relu_backward(const float* gradient, const float* x, float* out, std::int64_t count);
struct Images {
  std::int64_t batch, channels, num_places;
};
// relu_backward of images whose channels lie side by side, by a gradient that lies plane by plane. T: float,
// or std::uint16_t for the bits of a bfloat16.
template <class T>
void relu_backward_of_planes(const Images& images, const T* gradient, const T* x, T* out);
// Of the columns of a [rows, columns] matrix, in the order of LibTorch's cascade summation. LibTorch takes
// whole groups of columns in another order than the rest; a group is a multiple of 4 that depends on the
// processor and the number of columns.
void sum_rows(const float* x, float* out, std::int64_t rows, std::int64_t columns, std::int64_t group);
// Each row of [rows, columns] becomes `row`.
void fill_rows(const float* row, float* out, std::int64_t rows, std::int64_t columns);
// (x - y)².
void squared_difference(const float* x, const float* y, float* out, std::int64_t count);
// scale · (x - y) · gradient, the latter one number.
void squared_difference_backward(float scale, float gradient, const float* x, const float* y, float* out,
                                 std::int64_t count);

// C ← α·op(A)·op(B) + β·C in column-major order, by the BLAS that LibTorch brings along.
struct Gemm {
  bool transpose_a, transpose_b;
  int m, n, k, lda, ldb, ldc;
  float beta;
};
// Whether there is one.
bool has_gemm();
void gemm(const Gemm& shape, const float* a, const float* b, float* c);

}  // namespace kindling::fast
