#include "kindling/optim/plateau.h"

#include <charconv>
#include <limits>
#include <utility>

#include "kindling/base/number_text.h"

namespace kindling {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <class Number>
void read_number(const StateDict& state, const char* name, Number& number) {
  const auto found = state.metadata.find(name);
  if (found == state.metadata.end()) return;
  std::from_chars(found->second.data(), found->second.data() + found->second.size(), number);
}

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
  read_number(state, "best", best_);
  read_number(state, "num_bad_epochs", num_bad_);
  read_number(state, "cooldown_counter", cooldown_);
  read_number(state, "plateaus", count_);
}

}  // namespace kindling
