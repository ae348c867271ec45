#include "graph/kernels/libtorch_sgemm.h"

#include <ATen/Context.h>
#include <dlfcn.h>
#include <link.h>

#include <array>
#include <cmath>
#include <cstddef>

namespace kindling {

void multiply(Sgemm sgemm, const Gemm& shape, const float* a, const float* b, float* c) {
  const char transpose_a = shape.transpose_a ? 't' : 'n', transpose_b = shape.transpose_b ? 't' : 'n';
  const float alpha = 1;
  sgemm(&transpose_a, &transpose_b, &shape.m, &shape.n, &shape.k, &alpha, a, &shape.lda, b, &shape.ldb,
        &shape.beta, c, &shape.ldc);
}

namespace {

// Integers, whose sums are exact in every order. Each column of the result has one row more than is written,
// which must stay unchanged.
bool multiplies_correctly(Sgemm sgemm, bool transpose_a, bool transpose_b, bool adds) {
  constexpr std::size_t m = 2, n = 3, k = 4, ldc = m + 1;
  constexpr float kUntouched = -77;
  std::array<float, m * k> a{};
  std::array<float, k * n> b{};
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i) + 1;
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i) - 5;
  std::array<float, ldc * n> c{}, expected{};
  for (std::size_t column = 0; column < n; ++column)
    for (std::size_t row = 0; row < ldc; ++row) {
      float &found = c[column * ldc + row], &sum = expected[column * ldc + row];
      found = sum = row == m ? kUntouched : (adds ? 100 : 0);
      if (row == m) continue;
      if (!adds) found = std::nanf("");  // β = 0 means that it is not read
      for (std::size_t i = 0; i < k; ++i)
        sum += a[transpose_a ? row * k + i : i * m + row] * b[transpose_b ? i * n + column : column * k + i];
    }
  const auto leading = [](std::size_t rows) { return static_cast<std::int64_t>(rows); };
  multiply(sgemm,
           {.transpose_a = transpose_a,
            .transpose_b = transpose_b,
            .m = m,
            .n = n,
            .k = k,
            .lda = leading(transpose_a ? k : m),
            .ldb = leading(transpose_b ? n : k),
            .ldc = ldc,
            .beta = adds ? 1.F : 0.F},
           a.data(), b.data(), c.data());
  return c == expected;
}

bool is_executable(void* handle) {
  link_map* library = nullptr;
  return dlinfo(handle, RTLD_DI_LINKMAP, &library) != 0 || library == nullptr || library->l_name[0] == '\0';
}

// A search from LibTorch's own handle covers libtorch_cpu and then its dependencies, while RTLD_DEFAULT would
// start with the executable and with preloaded libraries.
Sgemm find_sgemm() {
  // A data symbol of LibTorch: the address of a function may be that of a stub in the executable.
  Dl_info libtorch{};
  if (dladdr(&at::globalContext(), &libtorch) == 0 || libtorch.dli_fname == nullptr) return nullptr;
  void* const handle = dlopen(libtorch.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return nullptr;
  void* const found = is_executable(handle) ? nullptr : dlsym(handle, "sgemm_");
  dlclose(handle);  // the library stays loaded: this one is linked with it
  return reinterpret_cast<Sgemm>(found);
}

}  // namespace

bool multiplies_correctly(Sgemm sgemm) {
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true})
      for (const bool adds : {false, true})
        if (!multiplies_correctly(sgemm, transpose_a, transpose_b, adds)) return false;
  return true;
}

Sgemm libtorch_sgemm() {
  static const Sgemm sgemm = [] {
    const Sgemm found = find_sgemm();
    return found != nullptr && multiplies_correctly(found) ? found : nullptr;
  }();
  return sgemm;
}

}  // namespace kindling
