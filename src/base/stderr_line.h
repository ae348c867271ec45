#pragma once

#include <atomic>

namespace kindling {

// True while a progress line is on stderr, with the cursor at its start. A log message erases the line first.
inline std::atomic<bool> has_stderr_line = false;

// Erases a progress line from the cursor on: below it too, where a narrower terminal has wrapped the line.
inline constexpr const char* kEraseLine = "\x1b[J";

}  // namespace kindling
