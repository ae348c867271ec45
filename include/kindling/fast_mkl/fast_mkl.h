#pragma once

#include <string>

namespace kindling {

// MKL computes LibTorch's matrix products and vector functions on x86 CPUs, and uses its fastest kernels on
// Intel CPUs only. In a program that links the target `kindling::fast_mkl`, MKL also uses them on other CPUs.
// They round differently, so results differ in their last bits. Only programs link this target; a library
// must not choose this for its host program.
enum class FastMkl {
  automatic,  // on where it can help: CPUs of other makers that have AVX2
  on,
  off,  // as without this target
};

// Sets the choice for this process; the default is `automatic`. MKL asks once, at the first matrix product or
// vector function, and keeps the answer. Returns false if it has asked before and got the other answer. May
// be called from any thread.
bool set_fast_mkl(FastMkl setting) noexcept;

// Returns the answer that MKL got: "on", "off", "not needed: this is an Intel CPU", or "undecided: MKL has
// not asked", which remains so if LibTorch has no MKL or if a plugin instead of the program links this
// target.
std::string fast_mkl_text();

}  // namespace kindling
