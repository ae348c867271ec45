#pragma once

#include <string>

namespace kindling {

// MKL, which computes LibTorch's products and vector functions on x86 CPUs, takes its fastest kernels on
// Intel's CPUs only. A program that links the target `kindling::fast_mkl` answers MKL's question whether it
// runs on one, and so has these kernels on other CPUs, too. They round differently: results differ in their
// last bits. Part of the program, never of the library: a library must not choose this for its host.
enum class FastMkl {
  automatic,  // on where it can help: CPUs of other makers that have AVX2
  on,
  off,  // as without this target
};

// For this process; without a call it is `automatic`. MKL asks once, at the first product or vector function,
// and keeps to the answer. False: it has asked before, and has been told otherwise. From any thread.
bool set_fast_mkl(FastMkl setting) noexcept;

// What MKL has been told: "on", "off", "not needed: this is an Intel CPU", or "undecided: MKL has not asked",
// as it stays where LibTorch has no MKL or where a plugin, not the program, links this.
std::string fast_mkl_text();

}  // namespace kindling
