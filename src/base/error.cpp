#include "kindling/base/error.h"

#include <utility>

namespace kindling {
namespace {

std::string text_of(const ErrorParts& parts) {
  std::string text = parts.place;
  if (!parts.found.empty()) text += (text.empty() ? "" : ": ") + parts.found;
  if (!parts.wanted.empty()) text += (text.empty() ? "expected: " : "; expected: ") + parts.wanted;
  if (!parts.remedy.empty()) text += (text.empty() ? "" : "; ") + parts.remedy;
  return text;
}

}  // namespace

Error::Error(ErrorParts parts) : std::runtime_error(text_of(parts)), parts_(std::move(parts)) {}

// Out of line, so that each error's type information exists once, in the library.
Error::~Error() = default;
ConfigError::~ConfigError() = default;
DataError::~DataError() = default;
CheckpointError::~CheckpointError() = default;
DeviceError::~DeviceError() = default;
DistributedError::~DistributedError() = default;

}  // namespace kindling
