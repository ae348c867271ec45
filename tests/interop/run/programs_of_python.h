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

// What a script of this folder exports and computes, once for all tests of a process, which several suites
// may share. Tests run with one thread, and are skipped without Python's PyTorch. `Script` has the name of
// the file, `kFile`.
template <class Script>
class ProgramsOfPython : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (python_with_torch().empty() || !programs_.folder.empty()) return;
    const std::string script = Script::kFile;
    programs_.folder = std::filesystem::path(testing::TempDir()) /
                       ("kindling-" + script.substr(0, script.find('.')) + "-" + std::to_string(::getpid()));
    std::filesystem::create_directories(programs_.folder);
    const std::string command = python_with_torch() + " " + KINDLING_TESTS + "/interop/run/" + script + " " +
                                programs_.folder.string() + " >" + file("said").string() + " 2>&1";
    programs_.succeeded = std::system(command.c_str()) == 0;
  }
  void SetUp() override {
    if (programs_.folder.empty()) GTEST_SKIP() << "no Python with PyTorch is here to export models";
    ASSERT_TRUE(programs_.succeeded) << read_file(file("said"), 1 << 20);
    at::set_num_threads(1);
  }
  void TearDown() override { at::set_num_threads(threads_); }

  static std::filesystem::path file(const std::string& name) { return programs_.folder / name; }

 private:
  struct Programs {
    ~Programs() {
      std::error_code ignored;
      std::filesystem::remove_all(folder, ignored);
    }
    std::filesystem::path folder;  // empty before the first suite
    bool succeeded = false;
  };
  static inline Programs programs_;
  int threads_ = at::get_num_threads();
};

}  // namespace kindling
