#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <kindling/fast_mkl/fast_mkl.h>
#include <malloc.h>

#include <exception>
#include <iostream>
#include <limits>

#include "cases.h"

int main(int argc, char** argv) {
  try {
    const auto options = kindling_bench::parse_options({argv + 1, argv + argc});
    at::set_num_threads(options.threads);
    // Like the program kindling, before the first operator.
    at::globalContext().setFlushDenormal(true);
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
    kindling::set_fast_mkl(options.peer == "kindling_mkl" ? kindling::FastMkl::on : kindling::FastMkl::off);
    kindling_bench::run_case(options);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "kindling_bench: " << error.what() << "\n";
    return 1;
  }
}
