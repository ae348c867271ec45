#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace kindling {

// In memory, for tests with thousands of files.
inline std::filesystem::path memory_folder() {
  const std::string shared_memory = "/dev/shm";
  return ::access(shared_memory.c_str(), W_OK) == 0 ? shared_memory : testing::TempDir();
}

// An empty directory for the running test, removed at its end; tests may run at the same time.
class Scratch {
 public:
  explicit Scratch(const std::filesystem::path& inside = testing::TempDir()) {
    const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
    std::string name = std::string("kindling-") + test.test_suite_name() + "-" + test.name();
    for (char& c : name) c = c == '/' ? '-' : c;
    folder_ = inside / (name + "-" + std::to_string(::getpid()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }
  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
};

inline void write_text(const std::filesystem::path& file, const std::string& text) {
  std::ofstream(file) << text;
}

// Returns the text of the error of type `Kind` that `call` throws; "(no error)" if it throws none.
template <class Kind, class Call>
std::string error_text(Call call) {
  try {
    call();
  } catch (const Kind& error) {
    return error.what();
  }
  return "(no error)";
}

}  // namespace kindling
