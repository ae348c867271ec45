// Another BLAS in the process: returns the correct product to LibTorch and a wrong one to all other callers.
// Part of a program (exported) or of a preloaded library.
#include <dlfcn.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <string_view>

namespace {

using Sgemm = void(const char*, const char*, const int*, const int*, const int*, const float*, const float*,
                   const int*, const float*, const int*, const float*, float*, const int*);

std::atomic<int> num_hostile_calls{0};

bool is_in_libtorch(const void* code) {
  Dl_info info{};
  return dladdr(code, &info) != 0 && info.dli_fname != nullptr &&
         std::string_view(info.dli_fname).find("libtorch_cpu") != std::string_view::npos;
}

}  // namespace

extern "C" {

// Calls that did not come from LibTorch.
__attribute__((visibility("default"))) int num_calls_of_hostile_sgemm() { return num_hostile_calls; }

__attribute__((visibility("default"))) void sgemm_(const char* transpose_a, const char* transpose_b,
                                                   const int* m, const int* n, const int* k,
                                                   const float* alpha, const float* a, const int* lda,
                                                   const float* b, const int* ldb, const float* beta,
                                                   float* c, const int* ldc) {
  if (is_in_libtorch(__builtin_return_address(0))) {
    static Sgemm* const libtorchs = reinterpret_cast<Sgemm*>(dlsym(RTLD_NEXT, "sgemm_"));
    return libtorchs(transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  }
  ++num_hostile_calls;
  *c = std::nanf("");
}
}
