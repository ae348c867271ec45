#pragma once

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "kindling/base/file.h"
#include "support/python.h"

namespace kindling {

// What a script of this folder exports and computes, once for all tests of a suite. Tests run with one
// thread, and are skipped without Python's PyTorch. `Script` has the name of the file, `kFile`.
template <class Script>
class ProgramsOfPython : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (python_with_torch().empty()) return;
    const std::string script = Script::kFile;
    folder_ = std::filesystem::path(testing::TempDir()) /
              ("kindling-" + script.substr(0, script.find('.')) + "-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
    const std::string command = python_with_torch() + " " + KINDLING_TESTS + "/interop/run/" + script + " " +
                                folder_.string() + " >" + file("said").string() + " 2>&1";
    succeeded_ = std::system(command.c_str()) == 0;
  }
  static void TearDownTestSuite() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  void SetUp() override {
    if (folder_.empty()) GTEST_SKIP() << "no Python with PyTorch is here to export models";
    ASSERT_TRUE(succeeded_) << read_file(file("said"), 1 << 20);
    at::set_num_threads(1);
  }
  void TearDown() override { at::set_num_threads(threads_); }

  static std::filesystem::path file(const std::string& name) { return folder_ / name; }

 private:
  static inline std::filesystem::path folder_;
  static inline bool succeeded_ = false;
  int threads_ = at::get_num_threads();
};

}  // namespace kindling
