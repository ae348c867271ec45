#include "graph/kernels/libtorch_sgemm.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>

namespace kindling {
namespace {

// The plain triple loop, with integers as wide as a BLAS may use.
template <class Int>
void sgemm_with(const char* transpose_a, const char* transpose_b, const std::int64_t* m,
                const std::int64_t* n, const std::int64_t* k, const float* alpha, const float* a,
                const std::int64_t* lda, const float* b, const std::int64_t* ldb, const float* beta, float* c,
                const std::int64_t* ldc) {
  const auto number = [](const std::int64_t* at) {
    Int read = 0;
    std::memcpy(&read, at, sizeof read);
    return read;
  };
  for (Int column = 0; column < number(n); ++column)
    for (Int row = 0; row < number(m); ++row) {
      float sum = 0;
      for (Int i = 0; i < number(k); ++i)
        sum += a[*transpose_a == 't' ? row * number(lda) + i : i * number(lda) + row] *
               b[*transpose_b == 't' ? i * number(ldb) + column : column * number(ldb) + i];
      float& to = c[column * number(ldc) + row];
      to = *alpha * sum + (*beta == 0 ? 0 : *beta * to);
    }
}

// A sgemm that applies `change` to its result.
template <auto change>
void changed_sgemm(const char* transpose_a, const char* transpose_b, const std::int64_t* m,
                   const std::int64_t* n, const std::int64_t* k, const float* alpha, const float* a,
                   const std::int64_t* lda, const float* b, const std::int64_t* ldb, const float* beta,
                   float* c, const std::int64_t* ldc) {
  sgemm_with<std::int64_t>(transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  change(c, *ldc);
}

TEST(LibtorchSgemm, AcceptsIntegersOfBothWidths) {
  EXPECT_TRUE(multiplies_correctly(sgemm_with<std::int32_t>));
  EXPECT_TRUE(multiplies_correctly(sgemm_with<std::int64_t>));
}

TEST(LibtorchSgemm, RefusesAWrongProduct) {
  EXPECT_FALSE(multiplies_correctly(changed_sgemm<[](float* c, std::int64_t) { c[0] += 1; }>));
  EXPECT_FALSE(
      multiplies_correctly(changed_sgemm<[](float* c, std::int64_t ldc) { c[ldc + 1] = -c[ldc + 1]; }>));
}

TEST(LibtorchSgemm, RefusesWritesOutsideTheResult) {
  EXPECT_FALSE(multiplies_correctly(changed_sgemm<[](float* c, std::int64_t ldc) { c[ldc - 1] = 0; }>));
}

TEST(LibtorchSgemm, ComesFromLibtorch) {
  const Sgemm sgemm = libtorch_sgemm();
  if (sgemm == nullptr) GTEST_SKIP() << "this LibTorch has no BLAS";
  Dl_info found{};
  ASSERT_NE(dladdr(reinterpret_cast<void*>(sgemm), &found), 0);
  EXPECT_EQ(std::filesystem::path(found.dli_fname).filename().string().find("kindling"), std::string::npos)
      << found.dli_fname;
}

}  // namespace
}  // namespace kindling
