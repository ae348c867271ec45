#pragma once

#include <c10/util/Exception.h>

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "kindling/base/export.h"

namespace kindling {

// Whether LibTorch's operators have to give the same numbers in every run: "false" leaves the process's
// setting as it is, with "true" one that cannot throws, with "warn" the app log hears of it, once.
class KINDLING_API DeterministicOperators {
 public:
  explicit DeterministicOperators(std::string_view mode = "false");

  // What holds while one lives, for the whole process: what was set before comes back with the last one. The
  // operators outlive it; warnings are those of the calling thread.
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
  // Takes LibTorch's warnings of such operators; others go where they went before.
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

// The name of the operator that LibTorch's error or warning says this of; empty: it is another text.
std::string nondeterministic_operator(std::string_view text);

}  // namespace kindling
