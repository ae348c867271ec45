#pragma once

#include <stdexcept>
#include <string>

#include "kindling/base/export.h"

namespace kindling {

// The parts of every error message: location, what was found, what was expected, a hint. Empty parts are
// omitted from the text. A message that is complete by itself, such as a list of several errors, goes into
// `found`.
struct ErrorParts {
  std::string place{};   // file, file:line:column, byte offset, option, call
  std::string found{};   // what is wrong, a clause: "the file ends after 12 of 16 header bytes"
  std::string wanted{};  // what was expected: "a multiple of 8"
  std::string remedy{};  // a hint on what to do: "copy the file again"
};

// Base of all errors of Kindling. what() is one line with these parts; a list has a line per item. A stop
// requested by the user, divergence and signals are not errors: see FitResult::status.
class KINDLING_API Error : public std::runtime_error {
 public:
  explicit Error(ErrorParts parts);
  ~Error() override;

  const ErrorParts& parts() const noexcept { return parts_; }

 private:
  ErrorParts parts_;
};

// A config file, command line or options that cannot be used (exit code 2 of the program).
class KINDLING_API ConfigError : public Error {
 public:
  using Error::Error;
  ~ConfigError() override;
};

// Data that is missing or corrupt (exit code 3).
class KINDLING_API DataError : public Error {
 public:
  using Error::Error;
  ~DataError() override;
};

// A file of weights or of a run's state that is missing, corrupt or does not match the model.
class KINDLING_API CheckpointError : public Error {
 public:
  using Error::Error;
  ~CheckpointError() override;
};

// A device that does not exist or cannot be used, or tensors on different devices.
class KINDLING_API DeviceError : public Error {
 public:
  using Error::Error;
  ~DeviceError() override;
};

// Ranks of a data-parallel run that disagree, or a lost rank.
class KINDLING_API DistributedError : public Error {
 public:
  using Error::Error;
  ~DistributedError() override;
};

}  // namespace kindling
