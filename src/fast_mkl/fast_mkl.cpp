#include "kindling/fast_mkl/fast_mkl.h"

#include <atomic>

namespace kindling {
namespace {

constexpr int kUndecided = -1;

std::atomic<FastMkl> setting{FastMkl::automatic};
std::atomic<int> told{kUndecided};

#if defined(__x86_64__)
bool is_intel() { return __builtin_cpu_is("intel") != 0; }
bool has_avx2() { return __builtin_cpu_supports("avx2") != 0; }
#else  // there is no MKL, which would ask
bool is_intel() { return false; }
bool has_avx2() { return false; }
#endif

int answer_of(FastMkl wanted) {
  return is_intel() || wanted == FastMkl::on || (wanted == FastMkl::automatic && has_avx2());
}

}  // namespace

bool set_fast_mkl(FastMkl wanted) noexcept {
  setting = wanted;
  return told == kUndecided || told == answer_of(wanted);
}

std::string fast_mkl_text() {
  if (told == kUndecided) return "undecided: MKL has not asked";
  if (is_intel()) return "not needed: this is an Intel CPU";
  return told == 1 ? "on" : "off";
}

}  // namespace kindling

// MKL has a function of this name, which looks at the CPU. The program's own one comes first wherever the
// loader looks for it. It is asked several times and must not change its mind.
extern "C" [[gnu::visibility("default")]] int mkl_serv_intel_cpu_true() {
  int undecided = kindling::kUndecided;
  kindling::told.compare_exchange_strong(undecided, kindling::answer_of(kindling::setting));
  return kindling::told;
}
