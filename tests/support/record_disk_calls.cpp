// Loaded into a program by LD_PRELOAD: writes the calls that change files below $KINDLING_RECORD_ROOT to the
// file $KINDLING_RECORD_TO, in their order. Read by recorded_calls.h. Kills the process after the call number
// $KINDLING_KILL_AT, counted from 1, if that is set.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdlib>
#include <cstring>

#include "support/recorded_call.h"

namespace {

constexpr int kMaxDescriptors = 4096;
bool is_recorded[kMaxDescriptors] = {};
const char* root = nullptr;
int record = -1;
pid_t recorded_process = 0;
long kill_at = 0;
std::atomic<long> num_calls = 0;

__attribute__((constructor)) void open_record() {
  root = ::getenv("KINDLING_RECORD_ROOT");
  const char* const to = ::getenv("KINDLING_RECORD_TO");
  if (root == nullptr || to == nullptr) return;
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
  record = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, to, kFlags, 0666));
  recorded_process = ::getpid();
  if (const char* const number = ::getenv("KINDLING_KILL_AT")) kill_at = std::atol(number);
}

bool is_below_root(const char* path) {
  return record >= 0 && ::getpid() == recorded_process && std::strncmp(path, root, std::strlen(root)) == 0;
}

bool is_known(int descriptor) {
  return record >= 0 && descriptor >= 0 && descriptor < kMaxDescriptors && is_recorded[descriptor] &&
         ::getpid() == recorded_process;
}

// In one piece, as threads may write at once.
void put(char kind, int descriptor, long number, const char* text, std::size_t size, const char* more = "") {
  kindling::RecordedCallHeader header{kind, descriptor, number, size, std::strlen(more)};
  iovec pieces[] = {{&header, sizeof header},
                    {const_cast<char*>(text), size},
                    {const_cast<char*>(more), header.more_bytes}};
  ::syscall(SYS_writev, record, pieces, 3);
  if (++num_calls == kill_at) ::syscall(SYS_kill, recorded_process, SIGKILL);
}

int open_recorded(const char* path, int flags, mode_t mode) {
  const int descriptor = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
  if (descriptor >= 0 && descriptor < kMaxDescriptors) {
    is_recorded[descriptor] = is_below_root(path);
    if (is_recorded[descriptor]) put('o', descriptor, flags, path, std::strlen(path));
  }
  return descriptor;
}

mode_t mode_in(int flags, va_list arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? static_cast<mode_t>(va_arg(arguments, int)) : 0;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_in(flags, arguments);
  va_end(arguments);
  return open_recorded(path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_in(flags, arguments);
  va_end(arguments);
  return open_recorded(path, flags, mode);
}

ssize_t write(int descriptor, const void* bytes, size_t size) {
  const ssize_t written = ::syscall(SYS_write, descriptor, bytes, size);
  if (written > 0 && is_known(descriptor))
    put('w', descriptor, 0, static_cast<const char*>(bytes), static_cast<std::size_t>(written));
  return written;
}

int ftruncate(int descriptor, off_t size) noexcept {
  const int result = static_cast<int>(::syscall(SYS_ftruncate, descriptor, size));
  if (result == 0 && is_known(descriptor)) put('t', descriptor, size, "", 0);
  return result;
}

int fsync(int descriptor) {
  const int result = static_cast<int>(::syscall(SYS_fsync, descriptor));
  if (result == 0 && is_known(descriptor)) put('s', descriptor, 0, "", 0);
  return result;
}

int close(int descriptor) {
  if (is_known(descriptor)) {
    put('c', descriptor, 0, "", 0);
    is_recorded[descriptor] = false;
  }
  return static_cast<int>(::syscall(SYS_close, descriptor));
}

int rename(const char* from, const char* to) noexcept {
  const int result = static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
  if (result == 0 && is_below_root(from)) put('r', 0, 0, from, std::strlen(from), to);
  return result;
}

int unlink(const char* path) noexcept {
  const int result = static_cast<int>(::syscall(SYS_unlinkat, AT_FDCWD, path, 0));
  if (result == 0 && is_below_root(path)) put('u', 0, 0, path, std::strlen(path));
  return result;
}

int mkdir(const char* path, mode_t mode) noexcept {
  const int result = static_cast<int>(::syscall(SYS_mkdirat, AT_FDCWD, path, mode));
  if (result == 0 && is_below_root(path)) put('m', 0, 0, path, std::strlen(path));
  return result;
}

}  // extern "C"
