#pragma once

#include <sys/types.h>

#include <cstddef>

namespace kindling {

// The system calls that change files, each as its manual says (-1 and errno for an error). All of Kindling's
// durable writing goes through them, so that tests can record them, put faults in their way, or kill the
// process between two of them.
class FileOperations {
 public:
  virtual ~FileOperations() = default;

  virtual int open(const char* path, int flags, mode_t mode);  // folders, too
  virtual ssize_t write(int descriptor, const void* bytes, std::size_t size);
  virtual int ftruncate(int descriptor, off_t size);
  virtual int fsync(int descriptor);
  virtual int close(int descriptor);
  virtual int rename(const char* from, const char* to);
  virtual int unlink(const char* path);
  virtual int mkdir(const char* path, mode_t mode);
};

// Those in force: the system's, unless a test has put its own in their place. From any thread.
FileOperations& file_operations();

// Puts others in force while it lives.
class ScopedFileOperations {
 public:
  explicit ScopedFileOperations(FileOperations& operations);  // outlive it
  ~ScopedFileOperations();
  ScopedFileOperations(const ScopedFileOperations&) = delete;
  ScopedFileOperations& operator=(const ScopedFileOperations&) = delete;

 private:
  FileOperations* before_;
};

}  // namespace kindling
