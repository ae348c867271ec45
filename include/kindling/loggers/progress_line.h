#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/loggers/progress.h"

namespace kindling {

// What kind of display to make.
enum class ProgressMode {
  bar,    // one line, redrawn in place: for terminals
  plain,  // a line now and then, neither escapes nor carriage returns: for pipes
  none
};

struct ProgressOptions {
  ProgressMode mode = ProgressMode::plain;
  bool color = false;                  // of the bar
  int width = 80;                      // columns of the terminal; a drawn line stays below it
  std::function<double()> clock = {};  // steady seconds; empty: the system's steady clock
};

// What there is to display.
struct ProgressState {
  Progress at = {};
  std::int64_t max_epochs = 0;                              // 0: unknown
  std::int64_t num_batches = 0;                             // of this epoch; 0: unknown
  std::int64_t max_steps = 0;                               // 0: unknown
  double elapsed_s = 0;                                     // since this epoch began
  std::vector<std::pair<std::string, double>> values = {};  // shown in this order: {"loss", 0.0812}
  double data_share = -1;  // part of the time spent waiting for data, 0 to 1; negative: not shown
};

// "epoch 2/3  ━━━━━━━━━─────  612/938  65%  00:07<00:04  84.1 it/s  loss 0.0812  acc 0.975  data 3%": what
// does not fit the width is left off from the right. Used from one thread.
class KINDLING_API ProgressLine {
 public:
  explicit ProgressLine(std::ostream& out, ProgressOptions options = {});  // borrows `out`

  // Whether it is time for show(): ten times a second for a bar, every 30 s (at first 30 s after the
  // construction) in plain mode. Cheap: ask every step, and gather the state only when it says so.
  bool due() const;
  void show(const ProgressState& state);  // draws, due or not
  void clear();                           // takes the drawn line away, before something else is printed

 private:
  std::ostream& out_;
  ProgressOptions options_;
  double next_s_;
  bool drawn_ = false;
};

// The text of the line without escapes, as plain mode has it (`bar` false) or with the bar.
KINDLING_API std::string progress_text(const ProgressState& state, int width, bool bar);

}  // namespace kindling
