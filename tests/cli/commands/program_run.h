#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "kindling/cli/program.h"
#include "support/scratch.h"

namespace kindling {

struct ProgramRun {
  int exit_code = 0;
  std::string out, err;
};

// Runs the program in this process, as a pipe sees it.
inline ProgramRun run_program(std::vector<std::string> words, const Registry& registry) {
  words.insert(words.begin(), "kindling");
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  ProgramRun run;
  run.exit_code = run_program(static_cast<int>(argv.size()), argv.data(), registry);
  run.out = testing::internal::GetCapturedStdout();
  run.err = testing::internal::GetCapturedStderr();
  return run;
}

inline ProgramRun run_program(std::vector<std::string> words) {
  Registry registry;
  register_builtin(registry);
  return run_program(std::move(words), registry);
}

inline std::string text_of(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

inline const std::filesystem::path kConfigs = KINDLING_CONFIGS;
inline const std::filesystem::path kGolden = KINDLING_GOLDEN;

}  // namespace kindling
