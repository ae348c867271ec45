#include "optim/strong_wolfe.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace kindling {
namespace {

constexpr double kC1 = 1e-4, kC2 = 0.9, kToleranceChange = 1e-9;

// Where the cubic through two points with their slopes is least, within the bounds.
double cubic_minimum(const LinePoint& a, const LinePoint& b, double low, double high) {
  const double d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t);
  const double square = d1 * d1 - a.slope * b.slope;
  if (!(square >= 0)) return (low + high) / 2;
  const double d2 = std::sqrt(square);
  const double minimum = a.t <= b.t
                             ? b.t - (b.t - a.t) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2))
                             : a.t - (a.t - b.t) * ((a.slope + d2 - d1) / (a.slope - b.slope + 2 * d2));
  return std::min(std::max(minimum, low), high);
}

class Search {
 public:
  Search(const std::function<LinePoint(double)>& evaluate, const LinePoint& start, double size,
         std::int64_t max_steps)
      : evaluate_(evaluate), start_(start), size_(size), max_steps_(max_steps) {}

  LineSearchResult run(double first) {
    bracket(first);
    if (!is_done_) zoom();
    return {low(), num_evaluations_};
  }

 private:
  LinePoint at(double t) {
    ++num_evaluations_;
    return evaluate_(t);
  }
  bool falls_too_little(const LinePoint& point) const {
    return point.loss > start_.loss + kC1 * point.t * start_.slope;
  }
  bool is_flat_enough(const LinePoint& point) const { return std::abs(point.slope) <= -kC2 * start_.slope; }
  const LinePoint& low() const { return ends_[low_]; }
  LinePoint& high() { return ends_[1 - low_]; }
  void order() { low_ = ends_[0].loss <= ends_[1].loss ? 0 : 1; }
  void set(const LinePoint& a, const LinePoint& b) {
    ends_ = {a, b};
    order();
  }

  // Goes on until two points hold one between them that meets the conditions, or one does so itself.
  void bracket(double first) {
    LinePoint previous = start_, point = at(first);
    for (; steps_ < max_steps_; ++steps_) {
      if (falls_too_little(point) || (steps_ > 1 && point.loss >= previous.loss)) return set(previous, point);
      if (is_flat_enough(point)) {
        is_done_ = true;
        return set(point, point);
      }
      if (point.slope >= 0) return set(previous, point);
      const double next =
          cubic_minimum(previous, point, point.t + 0.01 * (point.t - previous.t), point.t * 10);
      previous = std::exchange(point, at(next));
    }
    set(start_, point);
  }

  // Where to look between the two: not too close to one of them twice.
  double next_trial() {
    const auto [left, right] = std::minmax({ends_[0].t, ends_[1].t});
    double t = cubic_minimum(ends_[0], ends_[1], left, right);
    const double margin = 0.1 * (right - left);
    const bool is_close = std::min(right - t, t - left) < margin;
    if (is_close && (was_close_ || t >= right || t <= left)) {
      t = std::abs(t - right) < std::abs(t - left) ? right - margin : left + margin;
      was_close_ = false;
    } else {
      was_close_ = is_close;
    }
    return t;
  }
  void zoom() {
    while (!is_done_ && steps_ < max_steps_ &&
           std::abs(ends_[1].t - ends_[0].t) * size_ >= kToleranceChange) {
      const LinePoint point = at(next_trial());
      ++steps_;
      if (falls_too_little(point) || point.loss >= low().loss) {
        high() = point;
        order();
        continue;
      }
      if (is_flat_enough(point))
        is_done_ = true;
      else if (point.slope * (high().t - low().t) >= 0)
        high() = low();
      ends_[low_] = point;
    }
  }

  const std::function<LinePoint(double)>& evaluate_;
  const LinePoint& start_;
  const double size_;
  const std::int64_t max_steps_;
  std::array<LinePoint, 2> ends_;  // of the bracket
  std::size_t low_ = 0;            // the better one
  std::int64_t steps_ = 0, num_evaluations_ = 0;
  bool is_done_ = false, was_close_ = false;
};

}  // namespace

LineSearchResult strong_wolfe(const std::function<LinePoint(double t)>& evaluate, const LinePoint& start,
                              double first, double size, std::int64_t max_steps) {
  return Search(evaluate, start, size, max_steps).run(first);
}

}  // namespace kindling
