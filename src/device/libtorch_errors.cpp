#include "device/libtorch_errors.h"

#include <torch/version.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>
#include <string_view>

#include "device/deterministic_operators.h"
#include "kindling/base/error.h"

extern "C" std::uint64_t aoti_torch_abi_version();  // of LibTorch's stable interface

namespace kindling {
namespace {

std::uint64_t packed_byte(std::uint64_t version, int index_from_top) {
  return version >> (56 - 8 * index_from_top) & 0xff;
}

// The texts of LibTorch's allocators and of the libraries below them.
constexpr std::array<std::string_view, 4> kMemoryTexts = {"can't allocate memory", "not enough memory",
                                                          "out of memory", "ALLOC_FAILED"};

// oneDNN's errors have a status that its texts do not show: these occur when memory is exhausted.
constexpr std::array<std::string_view, 3> kOneDnnTexts = {
    "could not create a primitive", "could not create a memory object", "could not execute a primitive"};

bool is_of_onednn(std::string_view text) {
  return std::ranges::find(kOneDnnTexts, text) != kOneDnnTexts.end();
}

// "20.00 MiB" of "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has …", "64 bytes" of the CPU's
// text.
std::string size_asked_for(std::string_view text) {
  constexpr std::string_view before = "ried to allocate ";
  const std::size_t start = text.find(before);
  if (start == std::string_view::npos) return {};
  text.remove_prefix(start + before.size());
  return std::string(text.substr(0, std::min(text.find(". "), text.find('\n'))));
}

}  // namespace

void rethrow_translated(const std::string& place, const c10::Error& error) {
  if (const auto exhausted = text_of_exhausted_memory(error)) rethrow_out_of_memory(place, *exhausted);
  const std::string_view text = error.what_without_backtrace();
  const std::string first_line(text.substr(0, text.find('\n')));
  if (text.find("Expected all tensors to be on the same device") != std::string_view::npos)
    std::throw_with_nested(
        DeviceError({.place = place,
                     .found = first_line,
                     .wanted = "every tensor of a step on the trainer's device",
                     .remedy = "move it with kindling::move_to(tensor, other.device()), or create it with "
                               "other.options()"}));
  if (const std::string name = nondeterministic_operator(text); !name.empty())
    std::throw_with_nested(
        Error({.place = place,
               .found = name + " has no deterministic implementation, and the run rejects such "
                               "operators",
               .remedy = "use another operator, or set deterministic to warn"}));
  if (const auto label = label_out_of_range(error))
    std::throw_with_nested(DataError(
        {.place = place,
         .found = "a label of the data is " + std::to_string(*label) + ", and the outputs have fewer classes",
         .wanted = "labels from 0 to one less than there are classes, or -100, which is ignored",
         .remedy = "raise the model's num_classes (model.num_classes), or correct the labels"}));
  const bool is_one_sample = text.starts_with("Expected more than 1 value per channel when training");
  std::throw_with_nested(
      Error({.place = place,
             .found = first_line,
             .remedy = is_one_sample
                           ? "batch norm needs at least two samples: change batch_size, or set drop_last = "
                             "true if the last batch of an epoch has one"
                           : ""}));
}

void rethrow_out_of_memory(const std::string& place, std::string_view text,
                           std::optional<std::int64_t> num_samples) {
  const bool is_of_host =
      text.empty() || is_of_onednn(text) || text.find("DefaultCPUAllocator") != std::string_view::npos;
  const std::string size = size_asked_for(text);
  std::string found = is_of_host ? "host memory is exhausted" : "GPU memory is exhausted";
  if (!size.empty()) found += ": " + size + " were requested";
  if (is_of_onednn(text)) found += ": oneDNN " + std::string(text);
  if (num_samples) found += ", with a batch of " + std::to_string(*num_samples) + " samples";
  std::throw_with_nested(Error({.place = place,
                                .found = found,
                                .remedy = "use a smaller batch_size or a smaller model, or check what else "
                                          "uses memory"}));
}

std::optional<std::string> text_of_exhausted_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return "";
  if (is_of_onednn(error.what())) return error.what();
  const auto* const of_libtorch = dynamic_cast<const c10::Error*>(&error);
  if (of_libtorch == nullptr) return std::nullopt;
  const std::string text = of_libtorch->what_without_backtrace();
  const auto is_in = [&](std::string_view known) { return text.find(known) != text.npos; };
  const bool is_exhausted = dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
                            std::ranges::any_of(kMemoryTexts, is_in);
  return is_exhausted ? std::optional(text) : std::nullopt;
}

// "Target 9 is out of bounds."
std::optional<std::int64_t> label_out_of_range(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  constexpr std::string_view before = "Target ", after = " is out of bounds";
  if (!text.starts_with(before) || text.find(after) == std::string::npos) return std::nullopt;
  char* end = nullptr;
  const std::int64_t label = std::strtoll(text.c_str() + before.size(), &end, 10);
  if (!std::string_view(end).starts_with(after)) return std::nullopt;
  return label;
}

bool comes_from_memory(const std::exception& error) {
  if (text_of_exhausted_memory(error)) return true;
  try {
    std::rethrow_if_nested(error);
  } catch (const std::exception& nested) {
    return comes_from_memory(nested);
  } catch (...) {  // an unknown exception
  }
  return false;
}

std::uint64_t loaded_libtorch_version() noexcept { return aoti_torch_abi_version(); }

void require_matching_libtorch(std::uint64_t loaded) {
  const std::uint64_t major = packed_byte(loaded, 0), minor = packed_byte(loaded, 1);
  if (major == TORCH_VERSION_MAJOR && minor == TORCH_VERSION_MINOR) return;
  throw Error(
      {.place = "Kindling",
       .found = "LibTorch " + std::to_string(major) + "." + std::to_string(minor) + " has been loaded",
       .wanted = "LibTorch " + std::to_string(TORCH_VERSION_MAJOR) + "." +
                 std::to_string(TORCH_VERSION_MINOR) + ", which Kindling was built with",
       .remedy =
           "check which libtorch_cpu.so `ldd` finds (LD_LIBRARY_PATH?), or rebuild Kindling with that one"});
}

}  // namespace kindling
