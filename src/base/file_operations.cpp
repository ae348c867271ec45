#include "base/file_operations.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>

namespace kindling {
namespace {

FileOperations the_system;
std::atomic<FileOperations*> in_force = &the_system;

}  // namespace

int FileOperations::open(const char* path, int flags, mode_t mode) { return ::open(path, flags, mode); }

ssize_t FileOperations::write(int descriptor, const void* bytes, std::size_t size) {
  return ::write(descriptor, bytes, size);
}

int FileOperations::ftruncate(int descriptor, off_t size) { return ::ftruncate(descriptor, size); }

int FileOperations::fsync(int descriptor) { return ::fsync(descriptor); }

int FileOperations::close(int descriptor) { return ::close(descriptor); }

int FileOperations::rename(const char* from, const char* to) { return ::rename(from, to); }

int FileOperations::unlink(const char* path) { return ::unlink(path); }

int FileOperations::mkdir(const char* path, mode_t mode) { return ::mkdir(path, mode); }

FileOperations& file_operations() { return *in_force; }

ScopedFileOperations::ScopedFileOperations(FileOperations& operations)
    : before_(in_force.exchange(&operations)) {}

ScopedFileOperations::~ScopedFileOperations() { in_force = before_; }

}  // namespace kindling
