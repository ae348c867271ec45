#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>

namespace kindling {

// For a child process of a test: its address space may grow by so many bytes from now on. Leaves the process
// with 2 or 3 where that cannot be arranged.
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

}  // namespace kindling
