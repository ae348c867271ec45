#pragma once

#include <c10/util/Exception.h>

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "kindling/base/export.h"

namespace kindling {

// Requires LibTorch's operators to produce the same numbers in every run: "false" keeps the process's
// setting, "true" throws for an operator that cannot, "warn" logs a warning once per operator.
class KINDLING_API DeterministicOperators {
 public:
  explicit DeterministicOperators(std::string_view mode = "false");

  // Applies the setting to the whole process for its lifetime; the last scope restores the previous one. The
  // operators must outlive it; warnings are those of the calling thread.
  class KINDLING_API Scope {
   public:
    explicit Scope(DeterministicOperators& operators);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    DeterministicOperators& operators_;
    c10::WarningHandler* former_handler_;
    std::uint64_t ticket_ = 0;
  };

 private:
  // Receives LibTorch's warnings about such operators; passes others on.
  class Warnings : public c10::WarningHandler {
   public:
    void process(const c10::Warning& warning) override;
    c10::WarningHandler* others = nullptr;

   private:
    std::set<std::string> logged_{};
  };

  bool is_on_ = false, only_warns_ = false;
  Warnings warnings_{};
};

// Returns the operator's name in LibTorch's error or warning about nondeterminism; empty for other texts.
std::string nondeterministic_operator(std::string_view text);

}  // namespace kindling
