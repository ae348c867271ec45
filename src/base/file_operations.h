#pragma once

#include <sys/types.h>

#include <cstddef>

namespace kindling {

// The system calls that change files, each as in its manual (-1 and errno for an error). All durable writing
// goes through them, so that tests can record them, inject faults, or kill the process between two of them.
class FileOperations {
 public:
  virtual ~FileOperations() = default;

  virtual int open(const char* path, int flags, mode_t mode);  // directories too
  virtual ssize_t write(int descriptor, const void* bytes, std::size_t size);
  virtual int ftruncate(int descriptor, off_t size);
  virtual int fsync(int descriptor);
  virtual int close(int descriptor);
  virtual int rename(const char* from, const char* to);
  virtual int unlink(const char* path);
  virtual int mkdir(const char* path, mode_t mode);
};

// Returns the active operations: the system's, unless a test has replaced them. May be called from any
// thread.
FileOperations& file_operations();

// Replaces the operations while it exists.
class ScopedFileOperations {
 public:
  explicit ScopedFileOperations(FileOperations& operations);  // must outlive this
  ~ScopedFileOperations();
  ScopedFileOperations(const ScopedFileOperations&) = delete;
  ScopedFileOperations& operator=(const ScopedFileOperations&) = delete;

 private:
  FileOperations* before_;
};

}  // namespace kindling
