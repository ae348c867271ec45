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

// The kind of display.
enum class ProgressMode {
  bar,    // one line, redrawn in place: for terminals
  plain,  // a line at intervals, without escapes and carriage returns: for pipes
  none
};

struct ProgressOptions {
  ProgressMode mode = ProgressMode::plain;
  bool color = false;                  // colours the bar
  int width = 80;                      // columns of the terminal; a drawn line is shorter
  std::function<int()> columns = {};   // if set, called before each drawing instead of `width`
  std::function<double()> clock = {};  // steady seconds; empty: the system's steady clock
};

// The values to display.
struct ProgressState {
  Progress at = {};
  std::int64_t max_epochs = 0;                              // 0: unknown
  std::int64_t num_batches = 0;                             // of this epoch; 0: unknown
  std::int64_t max_steps = 0;                               // 0: unknown
  double elapsed_s = 0;                                     // since this epoch began
  std::vector<std::pair<std::string, double>> values = {};  // in display order: {"loss", 0.0812}
  double data_share = -1;         // fraction of the time spent waiting for data, 0 to 1; negative: not shown
  double run_left_s = -1;         // estimated, of the whole run; negative: not shown
  std::int64_t memory_bytes = 0;  // in use on the device; 0: not shown
  std::int64_t val_batch = 0;     // of a running validation, whose values replace those of the epoch:
  std::int64_t num_val_batches = 0;  // elapsed_s is its time; 0: the line shows the training
};

// "epoch 2/3  ━━━━━━━━━─────  612/938  65%  00:07<00:04  84.1 it/s  eta 00:15  loss 0.0812  mem 1 GiB",
// in a validation "epoch 2/3  ━━━━──────────  val 12/40  30%  …". Parts that exceed the width are dropped
// from the right. Between two drawings the cursor is at the start of the line: if the terminal gets narrower
// and wraps the line, the next drawing removes all its rows. On std::cerr, messages of the app log replace
// the line. Used from one thread.
class KINDLING_API ProgressLine {
 public:
  explicit ProgressLine(std::ostream& out, ProgressOptions options = {});  // does not own `out`

  // True if it is time for show(): ten times per second for a bar, every 30 s (the first time 30 s after
  // construction) in plain mode. Cheap: call it in every step, and collect the state only if it returns true.
  // While calls follow each other within a tick of the clock, some milliseconds, one in eight reads it.
  bool due() const;
  void show(const ProgressState& state);  // draws, due or not
  void clear();                           // removes the drawn line before other output

 private:
  void write_in_place(const std::string& text);

  std::ostream& out_;
  ProgressOptions options_;
  double next_s_;
  mutable double checked_s_ = -1;  // by due()
  mutable int num_calls_without_clock_ = 0;
  bool drawn_ = false;
};

// Returns the text of the line without escapes, as in plain mode (`bar` false) or with the bar.
KINDLING_API std::string progress_text(const ProgressState& state, int width, bool bar);

}  // namespace kindling
