#pragma once

#include <string>
#include <vector>

namespace kindling_bench {

// The options that the driver gives to every program it measures.
struct Options {
  std::string case_name;
  int threads = 1;
  int repeats = 11;
  std::string precision = "fp32";
  bool gate = false;        // say "ready" and wait for a line before every counted repeat
  bool first_step = false;  // of cold_start: make one step, print the CPU seconds since the process began
  // kindling; kindling_mkl: with MKL's fast kernels on CPUs that are not Intel's; kindling_eager: no step
  // graph; of the cases of checkpoints also plain.
  std::string peer = "kindling";
  std::string device = "cpu";  // or cuda
  std::string variant{};       // of the cases that have some: this one alone
  std::string folder = ".";    // where the files are
};

// Throws kindling::ConfigError for an option or a peer that is unknown, without its value or out of range.
Options parse_options(const std::vector<std::string>& arguments);

}  // namespace kindling_bench
