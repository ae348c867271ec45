#pragma once

#include <stdexcept>
#include <string>

#include "kindling/base/export.h"

namespace kindling {

// What every error says: where it was, what was found, what was wanted, what to do about it.
// Empty parts are left out of the text; one that is complete in itself, such as several findings at once, is
// given as `found`.
struct ErrorParts {
  std::string place{};   // file, file:line:column, byte offset, option, call
  std::string found{};   // what is wrong, a clause: "the file ends after 12 of 16 header bytes"
  std::string wanted{};  // what would have been right: "a multiple of 8"
  std::string remedy{};  // what the reader can do: "copy the file again"
};

// Base of all errors of Kindling. what() is one line: "place: found; wanted …; remedy".
// A user's stop, divergence and signals are no errors: they are FitResult::status.
class KINDLING_API Error : public std::runtime_error {
 public:
  explicit Error(ErrorParts parts);
  ~Error() override;

  const ErrorParts& parts() const noexcept { return parts_; }

 private:
  ErrorParts parts_;
};

// A config file, a command line or options that cannot be used (exit code 2 of the program).
class KINDLING_API ConfigError : public Error {
 public:
  using Error::Error;
  ~ConfigError() override;
};

// Data that is missing or broken (exit code 3).
class KINDLING_API DataError : public Error {
 public:
  using Error::Error;
  ~DataError() override;
};

// A file of weights or of a run's state that is missing, broken or does not fit the model.
class KINDLING_API CheckpointError : public Error {
 public:
  using Error::Error;
  ~CheckpointError() override;
};

// A device that does not exist, is not usable, or tensors on different devices.
class KINDLING_API DeviceError : public Error {
 public:
  using Error::Error;
  ~DeviceError() override;
};

// Processes that train together and do not agree, or one that the others have lost.
class KINDLING_API DistributedError : public Error {
 public:
  using Error::Error;
  ~DistributedError() override;
};

}  // namespace kindling
