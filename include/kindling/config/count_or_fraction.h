#pragma once

#include <concepts>
#include <cstdint>
#include <variant>

#include "kindling/base/export.h"

namespace kindling {

// Some of the batches of an epoch: a share of them (0.25) or so many (100). In code, and in a config, the
// point tells which: 1.0 is all, 1 is one.
class KINDLING_API Portion {
 public:
  Portion() = default;
  Portion(double share) : value_(share) {}
  template <std::integral Count>
  Portion(Count count) : value_(static_cast<std::int64_t>(count)) {}

  // Of so many batches; at least one of a share.
  std::int64_t of(std::int64_t num_batches) const;
  bool is_share() const noexcept { return std::holds_alternative<double>(value_); }
  // The share, or the number as a double.
  double number() const;

  friend bool operator==(const Portion&, const Portion&) = default;

 private:
  std::variant<double, std::int64_t> value_ = 1.0;
};

}  // namespace kindling
