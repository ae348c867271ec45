#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <exception>
#include <iostream>

#include "cases.h"

int main(int argc, char** argv) {
  try {
    const auto options = kindling_bench::parse_options({argv + 1, argv + argc});
    at::set_num_threads(options.threads);
    at::globalContext().setFlushDenormal(true);  // before the first operator: later threads inherit it
    kindling_bench::run_case(options);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "kindling_bench: " << error.what() << "\n";
    return 1;
  }
}
