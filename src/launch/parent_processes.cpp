#include "launch/parent_processes.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

namespace kindling {
namespace {

std::filesystem::path process_file(long process, const char* name) {
  return std::filesystem::path("/proc") / std::to_string(process) / name;
}

// Returns the texts that a file of /proc contains, each with a zero byte after it; nothing if the file cannot
// be read.
std::optional<std::vector<std::string>> texts_of_process(long process, const char* name) {
  std::ifstream file(process_file(process, name), std::ios::binary);
  if (!file) return std::nullopt;
  std::vector<std::string> texts;
  for (std::string text; std::getline(file, text, '\0');) texts.push_back(text);
  if (file.bad()) return std::nullopt;
  return texts;
}

std::optional<std::map<std::string, std::string>> variables_of_process(long process) {
  const auto texts = texts_of_process(process, "environ");
  if (!texts) return std::nullopt;
  std::map<std::string, std::string> variables;
  for (const std::string& text : *texts)
    if (const auto sign = text.find('='); sign != std::string::npos)
      variables.emplace(text.substr(0, sign), text.substr(sign + 1));
  return variables;
}

// Returns 0 for the first process of all and for one that has ended.
long parent_of_process(long process) {
  std::ifstream file(process_file(process, "status"));
  constexpr std::string_view kKey = "PPid:\t";
  long parent = 0;
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(kKey)) std::from_chars(line.data() + kKey.size(), line.data() + line.size(), parent);
  return parent;
}

}  // namespace

ParentProcesses parent_processes() {
  constexpr std::size_t kMaxDepth = 100;  // parents may change meanwhile
  ParentProcesses all;
  for (long process = ::getppid(); process > 0 && all.size() < kMaxDepth;
       process = parent_of_process(process))
    all.push_back({texts_of_process(process, "cmdline").value_or(std::vector<std::string>{}),
                   variables_of_process(process), process});
  return all;
}

std::int64_t process_that_set(const std::string& variable, const ParentProcesses& parents) {
  const char* const value = std::getenv(variable.c_str());
  if (value == nullptr) return 0;
  for (const ParentProcess& process : parents) {
    const bool is_read = process.variables && process.variables->contains(variable);
    if (!is_read || process.variables->at(variable) != value) return process.id;
  }
  return 0;
}

std::int64_t process_that_set(const std::string& variable) {
  return process_that_set(variable, parent_processes());
}

std::string program_name(const ParentProcess& process) {
  return process.command.empty() ? "" : std::filesystem::path(process.command.front()).filename().string();
}

}  // namespace kindling
