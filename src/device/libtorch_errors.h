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
// The same for memory that could not be had. `text` is that of text_of_exhausted_memory();
// `num_samples` those of the batch it was needed for.
[[noreturn]] void rethrow_out_of_memory(const std::string& place, std::string_view text,
                                        std::optional<std::int64_t> num_samples = {});
// What an error of LibTorch, oneDNN or the standard library says of memory that could not be had; nothing
// where it is about something else.
std::optional<std::string> text_of_exhausted_memory(const std::exception& error);
// Whether such an error is behind this one.
bool comes_from_memory(const std::exception& error);

template <class Call>
auto with_libtorch_errors(const char* place, Call&& call) {
  try {
    return call();
  } catch (const c10::Error& error) {
    rethrow_translated(place, error);
  } catch (const std::exception& error) {
    const auto text = text_of_exhausted_memory(error);
    if (!text) throw;
    rethrow_out_of_memory(place, *text);
  }
}

// Around what is done with one batch: where memory is exhausted the error tells how large it was.
template <class Call>
void with_memory_errors(const char* what, std::int64_t number, std::int64_t num_samples, Call&& call) {
  try {
    call();
  } catch (const std::exception& error) {
    const auto text = text_of_exhausted_memory(error);
    if (!text) throw;
    rethrow_out_of_memory(what + std::string(" ") + std::to_string(number), *text, num_samples);
  }
}

}  // namespace kindling
