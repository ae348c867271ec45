#pragma once

#include <c10/util/Exception.h>

#include <cstdint>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <string_view>

namespace kindling {

// Throws Kindling's equivalent of a LibTorch error at an entry point, with the original nested in it:
// DeviceError for tensors on different devices, Error for the rest.
[[noreturn]] void rethrow_translated(const std::string& place, const c10::Error& error);
// The same for failed memory allocations. `text` is the result of text_of_exhausted_memory(); `num_samples`
// is the size of the batch that needed it.
[[noreturn]] void rethrow_out_of_memory(const std::string& place, std::string_view text,
                                        std::optional<std::int64_t> num_samples = {});
// Returns the text of an out-of-memory error of LibTorch, oneDNN or the standard library; nothing for other
// errors.
std::optional<std::string> text_of_exhausted_memory(const std::exception& error);
// Returns the label that, as LibTorch's losses report, is not a class of the outputs; nothing for other
// errors.
std::optional<std::int64_t> label_out_of_range(const c10::Error& error);
// True if such an error is the cause of this one.
bool comes_from_memory(const std::exception& error);

// The version in the format of TORCH_ABI_VERSION: major, minor and patch in the three highest bytes.
std::uint64_t loaded_libtorch_version() noexcept;

// Throws Error unless `loaded` has the major and minor version that Kindling was built with: LibTorch's
// classes change their layout between minor versions, which would cause crashes far from their cause.
void require_matching_libtorch(std::uint64_t loaded = loaded_libtorch_version());

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

// Wraps the work on one batch: an out-of-memory error reports the size of the batch.
template <class Call>
auto with_memory_errors(const char* what, std::int64_t number, std::int64_t num_samples, Call&& call) {
  try {
    return call();
  } catch (const std::exception& error) {
    const auto text = text_of_exhausted_memory(error);
    if (!text) throw;
    rethrow_out_of_memory(what + std::string(" ") + std::to_string(number), *text, num_samples);
  }
}

}  // namespace kindling
