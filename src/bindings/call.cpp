#include "bindings/call.h"

#include <c10/util/Exception.h>

#include <array>
#include <cstddef>
#include <exception>
#include <new>
#include <utility>

#include "kindling/base/version.h"

namespace kindling::bindings {
namespace {

struct LatestError {
  std::string text{};
  std::array<std::string, 4> parts{};
};

LatestError& latest_error() {
  thread_local LatestError error;
  return error;
}

thread_local FloatingPointScope* innermost = nullptr;

kindling_status status_of(const Error& error) {
  if (const auto* with_status = dynamic_cast<const StatusError*>(&error)) return with_status->status();
  if (dynamic_cast<const ConfigError*>(&error) != nullptr) return KINDLING_CONFIG_ERROR;
  if (dynamic_cast<const DataError*>(&error) != nullptr) return KINDLING_DATA_ERROR;
  if (dynamic_cast<const CheckpointError*>(&error) != nullptr) return KINDLING_CHECKPOINT_ERROR;
  if (dynamic_cast<const DeviceError*>(&error) != nullptr) return KINDLING_DEVICE_ERROR;
  if (dynamic_cast<const DistributedError*>(&error) != nullptr) return KINDLING_DISTRIBUTED_ERROR;
  return KINDLING_ERROR;
}

kindling_status keep(const Error& error) {
  const ErrorParts& parts = error.parts();
  latest_error() = {error.what(), {parts.place, parts.found, parts.wanted, parts.remedy}};
  return status_of(error);
}

}  // namespace

void refuse_use(const std::string& place, const std::string& found, const std::string& wanted,
                const std::string& remedy) {
  throw StatusError(KINDLING_USAGE_ERROR,
                    {.place = place, .found = found, .wanted = wanted, .remedy = remedy});
}

void require_pointer(const void* pointer, const char* place, const char* argument) {
  if (pointer == nullptr)
    refuse_use(place, std::string("'") + argument + "' is a null pointer", "the address of an object");
}

FloatingPointScope::FloatingPointScope() noexcept : outer_(std::exchange(innermost, this)) {
  std::fegetenv(&callers_);
  std::fesetenv(FE_DFL_ENV);
}

FloatingPointScope::~FloatingPointScope() {
  innermost = outer_;
  std::fesetenv(&callers_);
}

CallerScope::CallerScope() noexcept : scope_(innermost) {
  if (scope_ != nullptr) std::fesetenv(&scope_->callers_);
}

CallerScope::~CallerScope() {
  if (scope_ == nullptr) return;
  std::fegetenv(&scope_->callers_);
  std::fesetenv(FE_DFL_ENV);
}

kindling_status keep_error(const char* place) noexcept {
  try {
    try {
      throw;
    } catch (const Error& error) {
      return keep(error);
    } catch (const c10::Error& error) {
      return keep(Error({.place = place, .found = error.what_without_backtrace()}));
    } catch (const std::bad_alloc&) {
      return keep(Error({.place = place,
                         .found = "the memory is used up",
                         .remedy = "use smaller batches, or a smaller model"}));
    } catch (const std::exception& error) {
      return keep(Error({.place = place, .found = error.what()}));
    } catch (...) {
      return keep(Error({.place = place, .found = "an unknown exception"}));
    }
  } catch (...) {  // no memory for the text
    return KINDLING_ERROR;
  }
}

}  // namespace kindling::bindings

using kindling::bindings::latest_error;

const char* kindling_error(void) { return latest_error().text.c_str(); }

const char* kindling_error_part(int32_t part) {
  const auto& parts = latest_error().parts;
  return part < 0 || static_cast<std::size_t>(part) >= parts.size()
             ? ""
             : parts[static_cast<std::size_t>(part)].c_str();
}

kindling_status kindling_set_error(kindling_status status, const char* location, const char* found,
                                   const char* expected, const char* hint) {
  const auto text = [](const char* part) { return part == nullptr ? "" : part; };
  const kindling_status kept = kindling::bindings::call(__func__, [&] {
    throw kindling::bindings::StatusError(
        status,
        {.place = text(location), .found = text(found), .wanted = text(expected), .remedy = text(hint)});
  });
  return kept == KINDLING_OK ? KINDLING_ERROR : kept;
}

const char* kindling_version(void) { return kindling::version(); }
