#include "kindling/optim/plateau.h"

#include <limits>
#include <utility>

#include "kindling/base/number_text.h"
#include "tensors/saved_number.h"

namespace kindling {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr SavedRange<std::int64_t> kCount{.min = 0};

}  // namespace

PlateauCounter::PlateauCounter(PlateauScheduleOptions options)
    : options_(std::move(options)), best_(options_.mode == "max" ? -kInfinity : kInfinity) {
  validate(options_, "plateau schedule");
}

bool PlateauCounter::is_better(double value) const {
  const bool is_max = options_.mode == "max";
  const double step = is_max ? options_.threshold : -options_.threshold;
  const double bar = options_.threshold_mode == "rel" ? best_ * (1 + step) : best_ + step;
  return is_max ? value > bar : value < bar;
}

void PlateauCounter::observe(double value) {
  if (is_better(value)) {
    best_ = value;
    num_bad_ = 0;
  } else {
    ++num_bad_;
  }
  if (cooldown_ > 0) {
    --cooldown_;
    num_bad_ = 0;
  }
  if (num_bad_ <= options_.patience) return;
  ++count_;
  cooldown_ = options_.cooldown;
  num_bad_ = 0;
}

void PlateauCounter::save(StateDict& state) const {
  state.metadata["best"] = number_text(best_);
  state.metadata["num_bad_epochs"] = std::to_string(num_bad_);
  state.metadata["cooldown_counter"] = std::to_string(cooldown_);
  state.metadata["plateaus"] = std::to_string(count_);
}

void PlateauCounter::load(const StateDict& state) {
  const auto best = find_number<double>(state.metadata, "best");
  const auto num_bad = find_number(state.metadata, "num_bad_epochs", kCount);
  const auto cooldown = find_number(state.metadata, "cooldown_counter", kCount);
  const auto count = find_number(state.metadata, "plateaus", kCount);
  best_ = best.value_or(best_);
  num_bad_ = num_bad.value_or(num_bad_);
  cooldown_ = cooldown.value_or(cooldown_);
  count_ = count.value_or(count_);
}

}  // namespace kindling
