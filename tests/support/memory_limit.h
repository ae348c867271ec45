#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <functional>
#include <string>

namespace kindling {

// For a child process of a test: limits the growth of its address space to this many bytes. Exits with 2 or 3
// if that fails.
inline void limit_further_memory(std::size_t bytes) {
  long pages = 0;
  if (std::FILE* statm = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(statm, "%ld", &pages) != 1) ::_exit(2);
    std::fclose(statm);
  }
  const rlim_t limit = static_cast<rlim_t>(pages) * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + bytes;
  const rlimit both{limit, limit};
  if (::setrlimit(RLIMIT_AS, &both) != 0) ::_exit(3);
}

// Returns the text that `work` returns in a child process with this memory limit.
inline std::string text_of_limited_child(std::size_t bytes, const std::function<std::string()>& work) {
  int pipe_ends[2];
  EXPECT_EQ(::pipe(pipe_ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    limit_further_memory(bytes);
    const std::string text = work();
    const auto written = ::write(pipe_ends[1], text.data(), text.size());
    ::_exit(written == static_cast<ssize_t>(text.size()) ? 0 : 4);
  }
  ::close(pipe_ends[1]);
  std::string text(4096, '\0');
  const auto size = ::read(pipe_ends[0], text.data(), text.size());
  ::close(pipe_ends[0]);
  text.resize(size < 0 ? 0 : static_cast<std::size_t>(size));
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return text;
}

}  // namespace kindling
