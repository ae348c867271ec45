#pragma once

#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "kindling/base/error.h"
#include "kindling/config/document.h"
#include "kindling/config/reader.h"

namespace kindling {

// Collects what is wrong with a fit, to be reported together.
class FitFindings {
 public:
  // `document` is valid as far as a reader can tell, and outlives this object.
  explicit FitFindings(const ConfigDocument& document);

  // Calls a part of the check. Returns false if it has thrown. A ConfigError becomes a finding at the key
  // that is its place, else at `path`, a key or a table.
  bool collect(const std::string& path, const std::function<void()>& call);
  // Adds a finding; `candidates` as in ConfigReader::error().
  void add(const std::string& path, const std::string& text, const std::vector<std::string>& candidates = {});
  bool empty() const noexcept { return reader_.num_errors() == 0 && others_.empty(); }
  // Throws one error if there are findings: ConfigError if some are of the config, DataError if some are of
  // the data; a single error of another type as it is.
  void throw_if_any();

 private:
  struct Other {
    std::string path;
    std::string text;
    std::exception_ptr error;
    bool is_of_data;
  };
  void add(const std::string& path, const ConfigError& error);
  [[noreturn]] void throw_others() const;

  ConfigReader reader_;
  std::vector<Other> others_;
};

struct FailedStep {
  std::string model{};          // its name
  std::string samples{};        // "Float [1, 8, 8]"
  bool takes_channels = false;  // the model has the option in_channels
  bool lacks_channels = false;  // the first tensor of a sample is [height, width]
  bool are_integers = false;    // the first tensor of a sample
  bool can_divide = false;      // the data has the options divisor and normalize
};

// Returns a plainer error for one of LibTorch in a training step. Images with other channels than the
// model's, without them, or too small for its layers, and integers get a message and a hint of their own.
Error step_error(const FailedStep& step, const ErrorParts& error);

}  // namespace kindling
