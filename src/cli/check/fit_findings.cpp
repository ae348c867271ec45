#include "cli/check/fit_findings.h"

#include <algorithm>
#include <string_view>

#include "base/config_errors.h"
#include "base/joined.h"

namespace kindling {
namespace {

// "3" after "] to have " in LibTorch's message; empty if it is absent.
std::string number_after(const std::string& text, std::string_view before) {
  const std::size_t at = text.find(before);
  if (at == std::string::npos) return {};
  const std::size_t begin = at + before.size();
  return text.substr(begin, text.find_first_not_of("0123456789", begin) - begin);
}

std::string channels_text(const std::string& number) {
  return number + (number == "1" ? " channel" : " channels");
}

}  // namespace

FitFindings::FitFindings(const ConfigDocument& document) : reader_(document) { reader_.skip(""); }

bool FitFindings::collect(const std::string& path, const std::function<void()>& call) {
  try {
    call();
    return true;
  } catch (const ConfigErrors& errors) {
    for (const ErrorParts& error : errors.errors()) add(path, ConfigError(error));
  } catch (const ConfigError& error) {
    add(path, error);
  } catch (const std::exception& error) {
    others_.push_back({.path = path,
                       .text = error.what(),
                       .error = std::current_exception(),
                       .is_of_data = dynamic_cast<const DataError*>(&error) != nullptr});
  }
  return false;
}

void FitFindings::add(const std::string& path, const ConfigError& error) {
  ErrorParts parts = error.parts();
  std::string named = parts.place.substr(0, parts.place.find(' '));  // of "model.init_map a=b", too
  if (!named.empty() && reader_.has(path + "." + named)) {           // "max_time" in the table "trainer"
    named = path + "." + named;
    parts.place = named;
  }
  const bool names_key = !named.empty() && reader_.has(named);
  if (names_key && named != parts.place) return add(named, error.what());
  const std::string key = names_key ? parts.place : path;
  const bool is_table = !names_key && path.find('.') == std::string::npos;
  if (is_table) return add(key, error.what());
  parts.place = "'" + key + "'";
  add(key, Error(parts).what());
}

void FitFindings::add(const std::string& path, const std::string& text,
                      const std::vector<std::string>& candidates) {
  reader_.error(path, text, candidates);
}

void FitFindings::throw_if_any() {
  if (reader_.num_errors() > 0) {
    for (const Other& other : others_) reader_.error(other.path, other.text);
    reader_.finish();
  }
  if (others_.size() == 1) std::rethrow_exception(others_.front().error);
  if (!others_.empty()) throw_others();
}

void FitFindings::throw_others() const {
  const auto text_of = [](const Other& other) { return other.text + "\n"; };
  const ErrorParts parts{.found = joined(others_, "", text_of) + std::to_string(others_.size()) +
                                  " errors, nothing was run"};
  if (std::ranges::any_of(others_, &Other::is_of_data)) throw DataError(parts);
  throw Error(parts);
}

Error step_error(const FailedStep& step, const ErrorParts& error) {
  const std::string& message = error.found;
  const auto contains = [&](std::string_view part) { return message.find(part) != std::string::npos; };
  const std::string place = "model '" + step.model + "'",
                    hint = "`kindling help " + step.model + "` lists its options",
                    wanted = number_after(message, "] to have "), got = number_after(message, "but got ");
  if (step.are_integers && contains("dtype"))
    return Error({.place = place,
                  .found = "the samples are " + step.samples + ", and its layers take floating-point numbers",
                  .wanted = "float32",
                  .remedy = step.can_divide ? "set data.divisor or data.normalize = [0.0, 1.0]"
                                            : "convert them in the data set: .to(torch::kFloat)"});
  if (step.lacks_channels && contains(" channels instead"))
    return Error({.place = place,
                  .found = "the samples are " + step.samples + ", without channels",
                  .wanted = "images [channels, height, width]",
                  .remedy = "add a dimension, in NumPy x[:, None]"});
  // "expected input[64, 1, 8, 8] to have 3 channels, but got 1 channels instead"
  if (contains(" channels instead") && !wanted.empty() && !got.empty())
    return Error({.place = place,
                  .found = "the samples are " + step.samples + ", with " + channels_text(got),
                  .wanted = "images of " + channels_text(wanted),
                  .remedy = step.takes_channels ? "set model.in_channels = " + got : hint});
  if (contains("Kernel size can't be greater than actual input size") || contains("Output size is too small"))
    return Error({.place = place,
                  .found = "the samples are " + step.samples + ", which is too small for its layers",
                  .wanted = "larger images",
                  .remedy = "enlarge them with [[data.train_transforms]] and [[data.val_transforms]] name = "
                            "\"resize\", or choose another model, such as small_cnn"});
  return Error({.place = place,
                .found = "its step fails for samples " + step.samples + ": " + message,
                .remedy = error.remedy.empty() ? hint : error.remedy});
}

}  // namespace kindling
