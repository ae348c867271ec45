#pragma once

#include <c10/util/Exception.h>

#include <cstdint>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <string_view>

namespace kindling {

// Throws what stands for an error of LibTorch at an entry point of Kindling, the original nested in it:
// DeviceError for tensors on different devices, Error for the rest.
[[noreturn]] void rethrow_translated(const std::string& place, const c10::Error& error);
// The same for memory that could not be had. `text` is the allocator's own, of host or card, or empty;
// `num_samples` those of the batch it was needed for.
[[noreturn]] void rethrow_out_of_memory(const std::string& place, std::string_view text,
                                        std::optional<std::int64_t> num_samples = {});
bool is_out_of_memory(const c10::Error& error);
// Whether memory that could not be had is behind an error of Kindling, LibTorch, oneDNN or the standard
// library, where the same is possible with a smaller batch.
bool comes_from_memory(const std::exception& error);

template <class Call>
auto with_libtorch_errors(const char* place, Call&& call) {
  try {
    return call();
  } catch (const c10::Error& error) {
    rethrow_translated(place, error);
  } catch (const std::bad_alloc&) {
    rethrow_out_of_memory(place, {});
  }
}

// Around what is done with one batch: where memory is exhausted the error tells how large it was.
template <class Call>
void with_memory_errors(const char* what, std::int64_t number, std::int64_t num_samples, Call&& call) {
  const auto place = [&] { return what + std::string(" ") + std::to_string(number); };
  try {
    call();
  } catch (const c10::Error& error) {
    if (!is_out_of_memory(error)) throw;
    rethrow_out_of_memory(place(), error.what_without_backtrace(), num_samples);
  } catch (const std::bad_alloc&) {
    rethrow_out_of_memory(place(), {}, num_samples);
  }
}

}  // namespace kindling
