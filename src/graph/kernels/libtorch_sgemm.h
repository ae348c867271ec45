#pragma once

#include <cstdint>

namespace kindling {

// A BLAS's sgemm_: C ← α·op(A)·op(B) + β·C, column by column. Its integers have 32 bits or 64; numbers of 64
// bits are read correctly as either where the low half comes first.
using Sgemm = void (*)(const char* transpose_a, const char* transpose_b, const std::int64_t* m,
                       const std::int64_t* n, const std::int64_t* k, const float* alpha, const float* a,
                       const std::int64_t* lda, const float* b, const std::int64_t* ldb, const float* beta,
                       float* c, const std::int64_t* ldc);

struct Gemm {
  bool transpose_a, transpose_b;
  std::int64_t m, n, k, lda, ldb, ldc;  // below 2³¹
  float beta;
};
// With α = 1.
void multiply(Sgemm sgemm, const Gemm& shape, const float* a, const float* b, float* c);

// Whether small products, whose results are known, come out right.
bool multiplies_correctly(Sgemm sgemm);

// Returns the sgemm_ that libtorch_cpu has inside or was linked with; nullptr where there is none, or where
// it does not multiply correctly. Never returns one of the executable or of a preloaded library. The first
// call searches and checks.
Sgemm libtorch_sgemm();

}  // namespace kindling
