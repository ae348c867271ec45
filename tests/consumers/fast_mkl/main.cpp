#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <kindling/fast_mkl/fast_mkl.h>

#include <iostream>

// Linking the target suffices: MKL calls a function of this program.
int main() {
  const at::Tensor matrix = at::ones({16, 16});
  if (at::mm(matrix, matrix).sum().item<float>() != 4096) return 1;
  std::cout << "MKL's fast kernels: " << kindling::fast_mkl_text() << "\n";
  const bool has_been_told = !kindling::set_fast_mkl(kindling::FastMkl::off);  // too late, if it matters
  return has_been_told == (kindling::fast_mkl_text() == "on") ? 0 : 1;
}
